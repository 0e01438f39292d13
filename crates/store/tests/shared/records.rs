//! Records and lookup results, for every tier.

use bytes::Bytes;
use microcache_store::{Claim, Content, Entry, EntryId, GetOutcome, TierError, Token};

pub(crate) fn id(number: usize) -> EntryId {
    EntryId::of(format!("key {number}").as_bytes())
}

pub(crate) fn entry(head: &[u8], body: &[u8]) -> Entry {
    Entry {
        head: Bytes::copy_from_slice(head),
        body: Content::Bytes(Bytes::copy_from_slice(body)),
    }
}

/// Result of a lookup, with or without a claim.
pub(crate) trait Looked {
    fn entry(&self) -> Option<&Entry>;

    /// Head and body of a hit.
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

impl Looked for GetOutcome {
    fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Entry(entry) => Some(entry),
            Self::Missing(_) => None,
        }
    }
}

/// Returns the claim that was granted for a missing entry.
pub(crate) fn mine(got: Result<GetOutcome, TierError>) -> Token {
    match got {
        Ok(GetOutcome::Missing(Claim::Granted(token))) => token,
        other => panic!("not mine: {other:?}"),
    }
}
