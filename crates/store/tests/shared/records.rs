//! Records, and what looks for them come to, in whichever tier they lie.

use bytes::Bytes;
use microcache_store::{Claim, Content, Entry, EntryId, Got, TierError, Token};

pub(crate) fn id(number: usize) -> EntryId {
    EntryId::of(format!("key {number}").as_bytes())
}

pub(crate) fn entry(head: &[u8], body: &[u8]) -> Entry {
    Entry {
        head: Bytes::copy_from_slice(head),
        body: Content::Bytes(Bytes::copy_from_slice(body)),
    }
}

/// What a look came to, of whoever would bring what is missing or not.
pub(crate) trait Looked {
    fn entry(&self) -> Option<&Entry>;

    /// Head and body of what was found.
    fn parts(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let entry = self.entry()?;
        let body = entry.body.bytes().expect("in memory");
        Some((entry.head.to_vec(), body.to_vec()))
    }
}

impl Looked for Option<Entry> {
    fn entry(&self) -> Option<&Entry> {
        self.as_ref()
    }
}

impl Looked for Got {
    fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Missing(_) => None,
        }
    }
}

/// The claim of whoever found nothing and is to bring it.
pub(crate) fn mine(got: Result<Got, TierError>) -> Token {
    match got {
        Ok(Got::Missing(Claim::Mine(token))) => token,
        other => panic!("not mine: {other:?}"),
    }
}
