//! A cache of encoded events: each recent change is encoded once for all subscribers.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::changes::events::EventFormat;

/// Limit of cached encodings.
const MAX_CACHED: usize = 64;
/// Limit of their size, in bytes.
const MAX_SIZE: usize = 8 * 1024 * 1024;

/// The newest encoded events.
#[derive(Default)]
pub(crate) struct EncodedChanges {
    /// Oldest first.
    cached: VecDeque<(u64, EventFormat, Bytes)>,
    size: usize,
}

impl EncodedChanges {
    /// Returns a change in one format, encoding it unless cached.
    pub(crate) fn get(
        &mut self,
        number: u64,
        form: EventFormat,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Bytes {
        let mut newest_first = self.cached.iter().rev();
        if let Some((_, _, known)) = newest_first.find(|(n, f, _)| *n == number && *f == form) {
            return known.clone();
        }
        let encoded = Bytes::from(encode());
        if encoded.len() <= MAX_SIZE {
            self.insert(number, form, encoded.clone());
        }
        encoded
    }

    fn insert(&mut self, number: u64, form: EventFormat, encoded: Bytes) {
        self.size += encoded.len();
        self.cached.push_back((number, form, encoded));
        while self.cached.len() > MAX_CACHED || self.size > MAX_SIZE {
            if let Some((_, _, old)) = self.cached.pop_front() {
                self.size -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_made_once_and_the_oldest_go() {
        let mut encodings = EncodedChanges::default();
        let made = |encodings: &mut EncodedChanges, number| {
            let mut made = false;
            encodings.get(number, EventFormat::Document, || {
                made = true;
                vec![0; MAX_SIZE / 2]
            });
            made
        };
        assert!(made(&mut encodings, 1));
        assert!(!made(&mut encodings, 1));
        assert!(made(&mut encodings, 2));
        assert!(!made(&mut encodings, 1));
        assert!(made(&mut encodings, 3));
        assert!(made(&mut encodings, 1));
        assert!(encodings.size <= MAX_SIZE);
    }
}
