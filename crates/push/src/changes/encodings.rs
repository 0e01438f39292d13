//! A cache of encoded events: each recent change is encoded once for all subscribers.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::changes::events::Form;

/// Limit of cached encodings.
const MAX_KEPT: usize = 64;
/// Limit of their size, in bytes.
const MAX_SIZE: usize = 8 * 1024 * 1024;

/// The newest encoded events.
#[derive(Default)]
pub(crate) struct Encodings {
    /// Oldest first.
    kept: VecDeque<(u64, Form, Bytes)>,
    size: usize,
}

impl Encodings {
    /// Returns a change in one format, encoding it unless cached.
    pub(crate) fn get(
        &mut self,
        number: u64,
        form: Form,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Bytes {
        let mut newest_first = self.kept.iter().rev();
        if let Some((_, _, known)) = newest_first.find(|(n, f, _)| *n == number && *f == form) {
            return known.clone();
        }
        let encoded = Bytes::from(encode());
        if encoded.len() <= MAX_SIZE {
            self.keep(number, form, encoded.clone());
        }
        encoded
    }

    fn keep(&mut self, number: u64, form: Form, encoded: Bytes) {
        self.size += encoded.len();
        self.kept.push_back((number, form, encoded));
        while self.kept.len() > MAX_KEPT || self.size > MAX_SIZE {
            if let Some((_, _, old)) = self.kept.pop_front() {
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
        let mut encodings = Encodings::default();
        let made = |encodings: &mut Encodings, number| {
            let mut made = false;
            encodings.get(number, Form::Plain, || {
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
