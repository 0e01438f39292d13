//! Copies of large bodies in anonymous files, for `sendfile`.
//!
//! `send` copies a body into the socket each time; with `sendfile` the socket refers to the file's pages. So a
//! large body that is requested again is put into a file in memory (memfd). Each thread keeps a few of these,
//! for its own connections without TLS.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::admission::descriptors::COPIES;

/// Smallest body in bytes; smaller ones are sent faster by copying.
pub(super) const LARGE: usize = 48 * 1024;
/// Largest body in bytes; beyond it the kernel's work per page exceeds the cost of a copy.
const LARGEST: usize = 256 * 1024;
/// Memory limit of the copies of one thread, in bytes.
const BYTES: usize = 8 * 1024 * 1024;
/// Bodies sent once that a thread remembers.
const SEEN: usize = 32;

thread_local! {
    static CACHE: RefCell<MemfdCopies> = RefCell::default();
}

/// Returns the copy of a body, if it has been sent often enough to have one.
pub(super) fn copy_of(body: &Bytes) -> Option<Arc<File>> {
    if !(LARGE..=LARGEST).contains(&body.len()) {
        return None;
    }
    CACHE.with_borrow_mut(|copies| copies.copy_of(body))
}

#[derive(Default)]
struct MemfdCopies {
    /// Most recently used first.
    copies: Vec<MemfdCopy>,
    bytes: usize,
    /// Address and length of bodies sent once. A hint only: the memory may have been reused.
    seen: Vec<(usize, usize)>,
    next: usize,
}

struct MemfdCopy {
    /// Keeps the memory from being reused as long as the copy exists.
    body: Bytes,
    /// `None` if the system has refused one.
    file: Option<Arc<File>>,
}

impl MemfdCopies {
    fn copy_of(&mut self, body: &Bytes) -> Option<Arc<File>> {
        let place = place(body);
        if let Some(at) = self
            .copies
            .iter()
            .position(|copy| self::place(&copy.body) == place)
        {
            self.copies[..=at].rotate_right(1);
            return self.copies[0].file.clone();
        }
        if let Some(at) = self.seen.iter().position(|seen| *seen == place) {
            self.seen.swap_remove(at);
            return self.make(body);
        }
        if self.seen.len() < SEEN {
            self.seen.push(place);
        } else {
            self.seen[self.next] = place;
            self.next = (self.next + 1) % SEEN;
        }
        None
    }

    fn make(&mut self, body: &Bytes) -> Option<Arc<File>> {
        while self.copies.len() >= COPIES || self.bytes + body.len() > BYTES {
            let last = self.copies.pop()?;
            self.bytes -= last.body.len();
        }
        let file = in_memory(body).ok().map(Arc::new);
        self.bytes += body.len();
        let body = body.clone();
        self.copies.insert(
            0,
            MemfdCopy {
                body,
                file: file.clone(),
            },
        );
        file
    }
}

/// Returns address and length of a body.
fn place(body: &Bytes) -> (usize, usize) {
    (body.as_ptr().addr(), body.len())
}

fn in_memory(body: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"microcache-body", MemfdFlags::CLOEXEC)?);
    file.write_all(body)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn body(fill: u8, length: usize) -> Bytes {
        vec![fill; length].into()
    }

    #[test]
    fn a_body_has_a_copy_once_it_was_sent() {
        let mut copies = MemfdCopies::default();
        let (one, other) = (body(1, LARGE), body(2, LARGE));
        assert!(copies.copy_of(&one).is_none());
        assert!(copies.copy_of(&other).is_none());
        let copy = copies.copy_of(&one).expect("it was sent before");
        let mut read = vec![0; LARGE];
        copy.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, one);
        assert!(Arc::ptr_eq(&copy, &copies.copy_of(&one).unwrap()));
        // Equal bytes at another address are another body, and so is a part of them.
        assert!(copies.copy_of(&body(1, LARGE)).is_none());
        assert!(copies.copy_of(&one.slice(1..)).is_none());
    }

    #[test]
    fn a_body_in_reused_memory_is_not_mistaken_for_another() {
        let mut copies = MemfdCopies::default();
        let one = body(1, LARGE);
        copies.copy_of(&one);
        copies.copy_of(&one);
        drop(one);
        // The allocator would reuse the memory at once if the copy did not hold the body.
        for fill in 2..100 {
            let other = body(fill, LARGE);
            for _ in 0..3 {
                if let Some(copy) = copies.copy_of(&other) {
                    let mut read = vec![0; LARGE];
                    copy.read_exact_at(&mut read, 0).unwrap();
                    assert_eq!(read, other);
                }
            }
        }
    }

    #[test]
    fn copies_are_few_and_the_least_used_gives_way() {
        let mut copies = MemfdCopies::default();
        let often = body(0, LARGE);
        let mut bodies = Vec::new();
        for fill in 0..3 * COPIES {
            copies.copy_of(&often);
            let one = body(fill as u8, LARGE);
            copies.copy_of(&one);
            assert!(copies.copy_of(&one).is_some());
            bodies.push(one);
        }
        assert_eq!(copies.copies.len(), COPIES);
        assert!(
            copies
                .copies
                .iter()
                .any(|copy| place(&copy.body) == place(&often))
        );
        assert_eq!(copies.bytes, COPIES * LARGE);
        for fill in 0..COPIES as u8 {
            let large = body(fill, LARGEST);
            copies.copy_of(&large);
            copies.copy_of(&large);
            bodies.push(large);
        }
        assert!(copies.bytes <= BYTES, "{}", copies.bytes);
        assert_eq!(
            copies.bytes,
            copies
                .copies
                .iter()
                .map(|copy| copy.body.len())
                .sum::<usize>()
        );
        assert!(copy_of(&body(0, LARGEST + 1)).is_none());
    }
}
