//! Copies of large bodies whose pages the system lends to sockets.
//!
//! What is sent with `send` is copied into the socket each time. What lies in a file is not: the socket refers to its
//! pages. So a large body that is asked for again is put into a file that is nothing but memory. Each thread keeps a few of
//! these, for what it sends often; nobody but the thread knows of them, and they are good for a socket without TLS only.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

/// Smaller bodies are sent faster by copying them.
pub(super) const LARGE: usize = 48 * 1024;
/// Larger ones too: for each of so many pages the kernel does more than it takes to copy them.
const LARGEST: usize = 256 * 1024;
/// What the copies of one thread may take.
const BYTES: usize = 8 * 1024 * 1024;
/// How many copies a thread keeps, and with that descriptors.
pub(crate) const COPIES: usize = 32;
/// How many bodies are remembered that were sent once.
const SEEN: usize = 32;

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// The copy of a body, if it has been sent often enough to have one.
pub(super) fn copy_of(body: &Bytes) -> Option<Arc<File>> {
    if !(LARGE..=LARGEST).contains(&body.len()) {
        return None;
    }
    KEPT.with_borrow_mut(|kept| kept.copy_of(body))
}

#[derive(Default)]
struct Kept {
    /// The one that was used last comes first.
    copies: Vec<Copy>,
    bytes: usize,
    /// Where bodies lay that were sent once: no more than a hint, something else may lie there now.
    seen: Vec<(usize, usize)>,
    next: usize,
}

struct Copy {
    /// As long as it is held, nothing else lies there.
    body: Bytes,
    /// `None` if the system has refused one.
    file: Option<Arc<File>>,
}

impl Kept {
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
            Copy {
                body,
                file: file.clone(),
            },
        );
        file
    }
}

/// Which piece of memory it is.
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
        let mut kept = Kept::default();
        let (one, other) = (body(1, LARGE), body(2, LARGE));
        assert!(kept.copy_of(&one).is_none());
        assert!(kept.copy_of(&other).is_none());
        let copy = kept.copy_of(&one).expect("it was sent before");
        let mut read = vec![0; LARGE];
        copy.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, one);
        assert!(Arc::ptr_eq(&copy, &kept.copy_of(&one).unwrap()));
        // The same bytes elsewhere are another body, and so is a part of them.
        assert!(kept.copy_of(&body(1, LARGE)).is_none());
        assert!(kept.copy_of(&one.slice(1..)).is_none());
    }

    #[test]
    fn what_lies_where_another_one_lay_is_never_taken_for_it() {
        let mut kept = Kept::default();
        let one = body(1, LARGE);
        kept.copy_of(&one);
        kept.copy_of(&one);
        drop(one);
        // The allocator would give the place away at once, were the body not held.
        for fill in 2..100 {
            let other = body(fill, LARGE);
            for _ in 0..3 {
                if let Some(copy) = kept.copy_of(&other) {
                    let mut read = vec![0; LARGE];
                    copy.read_exact_at(&mut read, 0).unwrap();
                    assert_eq!(read, other);
                }
            }
        }
    }

    #[test]
    fn copies_are_few_and_the_least_used_gives_way() {
        let mut kept = Kept::default();
        let often = body(0, LARGE);
        let mut bodies = Vec::new();
        for fill in 0..3 * COPIES {
            kept.copy_of(&often);
            let one = body(fill as u8, LARGE);
            kept.copy_of(&one);
            assert!(kept.copy_of(&one).is_some());
            bodies.push(one);
        }
        assert_eq!(kept.copies.len(), COPIES);
        assert!(
            kept.copies
                .iter()
                .any(|copy| place(&copy.body) == place(&often))
        );
        assert_eq!(kept.bytes, COPIES * LARGE);
        for fill in 0..COPIES as u8 {
            let large = body(fill, LARGEST);
            kept.copy_of(&large);
            kept.copy_of(&large);
            bodies.push(large);
        }
        assert!(kept.bytes <= BYTES, "{}", kept.bytes);
        assert_eq!(
            kept.bytes,
            kept.copies
                .iter()
                .map(|copy| copy.body.len())
                .sum::<usize>()
        );
        assert!(copy_of(&body(0, LARGEST + 1)).is_none());
    }
}
