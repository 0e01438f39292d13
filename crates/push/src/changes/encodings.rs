//! A cache of encoded events: each recent change is encoded once for all subscribers.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::changes::change::DocumentChange;
use crate::changes::events::{EventFormat, encode};
use crate::changes::generations::Generations;
use crate::changes::version::DocumentVersion;

/// Limit of cached encodings.
const MAX_CACHED: usize = 64;
/// Limit of their size in bytes, above which the oldest make room for the next one.
const MAX_SIZE: usize = 8 * 1024 * 1024;

/// The newest encoded events, oldest first.
#[derive(Default)]
pub(crate) struct EncodedChanges(VecDeque<CachedEncoding>);

/// An event in one format.
struct CachedEncoding {
    number: u64,
    format: EventFormat,
    bytes: Arc<OnceLock<Bytes>>,
}

/// An event that is encoded, or will be by the first subscriber that needs it.
pub(crate) enum EventEncoding {
    Encoded(Bytes),
    Pending(PendingEncoding),
}

/// An event to encode without holding the lock of the index.
pub(crate) struct PendingEncoding {
    change: Arc<DocumentChange>,
    version: DocumentVersion,
    format: EventFormat,
    bytes: Arc<OnceLock<Bytes>>,
}

impl EventEncoding {
    /// Returns the bytes. Subscribers that need the same event meanwhile wait for the one that encodes it.
    pub(crate) fn into_bytes(self) -> Bytes {
        let pending = match self {
            Self::Encoded(bytes) => return bytes,
            Self::Pending(pending) => pending,
        };
        let encode = || encode(&pending.change, pending.version, pending.format).into();
        pending.bytes.get_or_init(encode).clone()
    }
}

impl EncodedChanges {
    /// Returns a change in one format.
    pub(crate) fn get(
        &mut self,
        change: Arc<DocumentChange>,
        format: EventFormat,
        generations: &Generations,
    ) -> EventEncoding {
        let mut newest_first = self.0.iter().rev();
        let known = newest_first.find(|it| it.number == change.number && it.format == format);
        let bytes = match known {
            Some(CachedEncoding { bytes, .. }) => match bytes.get() {
                Some(encoded) => return EventEncoding::Encoded(encoded.clone()),
                None => Arc::clone(bytes),
            },
            None => self.insert(change.number, format),
        };
        EventEncoding::Pending(PendingEncoding {
            version: generations.version(change.number),
            change,
            format,
            bytes,
        })
    }

    fn insert(&mut self, number: u64, format: EventFormat) -> Arc<OnceLock<Bytes>> {
        while self.0.len() >= MAX_CACHED || self.size() > MAX_SIZE {
            self.0.pop_front();
        }
        let bytes = Arc::<OnceLock<Bytes>>::default();
        self.0.push_back(CachedEncoding {
            number,
            format,
            bytes: Arc::clone(&bytes),
        });
        bytes
    }

    fn size(&self) -> usize {
        let encoded = self.0.iter().filter_map(|it| it.bytes.get());
        encoded.map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::DocumentContent;

    #[test]
    fn each_is_made_once_and_the_oldest_go() {
        let generations = Generations::new(1);
        let mut encodings = EncodedChanges::default();
        let mut is_new = |number, length| {
            let content = DocumentContent {
                media_type: "text/plain".into(),
                body: vec![b'x'; length].into(),
            };
            let change = Arc::new(DocumentChange {
                number,
                name: "/live/x".into(),
                content: Some(content),
                expires: None,
                delta: None,
            });
            let encoding = encodings.get(change, EventFormat::Document, &generations);
            let is_new = matches!(encoding, EventEncoding::Pending(_));
            assert!(encoding.into_bytes().len() > length);
            is_new
        };
        let half = MAX_SIZE / 2;
        assert!(is_new(1, half) && !is_new(1, half));
        assert!(is_new(2, half) && !is_new(1, half));
        // The first one leaves when a third one needs room.
        assert!(is_new(3, half) && is_new(1, 0));
        for number in 4..4 + MAX_CACHED as u64 {
            assert!(is_new(number, 0) && !is_new(number, 0));
        }
        assert!(is_new(1, 0));
    }

    /// As two threads do that poll before either of them encodes.
    #[test]
    fn subscribers_share_an_encoding_that_is_not_made_yet() {
        let change = Arc::new(DocumentChange {
            number: 1,
            name: "/live/x".into(),
            content: None,
            expires: None,
            delta: None,
        });
        let generations = Generations::new(1);
        let mut encodings = EncodedChanges::default();
        let mut get = || encodings.get(Arc::clone(&change), EventFormat::Json, &generations);
        let (first, second) = (get(), get());
        let (first, second) = (first.into_bytes(), second.into_bytes());
        assert_eq!(first.as_ptr(), second.as_ptr());
    }
}
