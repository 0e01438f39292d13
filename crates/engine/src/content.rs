//! The content of QUERY requests (RFC 10008), which is part of the cache key, and the memory that it may take.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::{FieldsBuf, Network};
use sha2::{Digest, Sha256};

use crate::body::Body;
use crate::sync::Mutex;

/// The longest content that is part of a key, in bytes. Longer content passes.
pub(crate) const MAX_CONTENT: u64 = 64 * 1024;
/// Content held at once, in bytes: of all clients, and of one network. Beyond it, requests pass.
const MAX_HELD: u64 = 64 << 20;
const MAX_HELD_OF_ONE: u64 = 1 << 20;

/// The fields that say what content means.
const MEANING: [&str; 2] = ["content-type", "content-encoding"];

/// A hash of content and its meaning. No two requests can be made to have the same.
pub type ContentDigest = [u8; 32];

/// The content of a QUERY.
#[derive(Debug)]
pub struct QueryContent {
    bytes: Bytes,
    /// The field lines that say what it means.
    meaning: FieldsBuf,
    digest: ContentDigest,
    _held: HeldContent,
}

impl QueryContent {
    /// The hash that is part of the key.
    pub const fn digest(&self) -> &ContentDigest {
        &self.digest
    }

    /// The body for the origin, and its length.
    pub(crate) fn body(&self) -> (Body, Option<u64>) {
        (
            Body::Full(self.bytes.clone()),
            Some(self.bytes.len() as u64),
        )
    }

    /// Adds the fields that say what it means.
    pub(crate) fn add_fields(&self, fields: &mut FieldsBuf) {
        for (name, value) in self.meaning.fields() {
            fields.push(name, value);
        }
    }

    /// Takes the meaning from the fields to be forwarded.
    pub(crate) fn new(bytes: Bytes, outgoing: &mut FieldsBuf, held: HeldContent) -> Self {
        let (mut hash, mut meaning) = (Sha256::new(), FieldsBuf::new());
        for name in MEANING {
            for value in outgoing.fields().all(name) {
                hash.update([1]);
                hash.update((value.len() as u64).to_le_bytes());
                hash.update(value);
                meaning.push(name, value);
            }
            hash.update([0]);
            outgoing.remove(name);
        }
        hash.update(&bytes);
        Self {
            digest: hash.finalize().into(),
            bytes,
            meaning,
            _held: held,
        }
    }
}

/// The content held at once, by network.
#[derive(Debug, Default)]
pub(crate) struct ContentBudget(Mutex<(u64, HashMap<Network, u64>)>);

/// A share of the budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldContent {
    budget: Arc<ContentBudget>,
    network: Network,
    bytes: u64,
}

impl ContentBudget {
    pub(crate) fn hold(self: &Arc<Self>, network: Network, bytes: u64) -> Option<HeldContent> {
        let mut held = self.0.lock();
        let (all, by_network) = &mut *held;
        let own = by_network.get(&network).copied().unwrap_or(0) + bytes;
        if *all + bytes > MAX_HELD || own > MAX_HELD_OF_ONE {
            return None;
        }
        *all += bytes;
        by_network.insert(network, own);
        Some(HeldContent {
            budget: Arc::clone(self),
            network,
            bytes,
        })
    }
}

impl HeldContent {
    /// The announced length.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl Drop for HeldContent {
    fn drop(&mut self) {
        let mut held = self.budget.0.lock();
        held.0 -= self.bytes;
        if let Some(own) = held.1.get_mut(&self.network) {
            *own -= self.bytes;
            if *own == 0 {
                held.1.remove(&self.network);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn digest(bytes: &'static str, fields: &[(&str, &str)]) -> ContentDigest {
        let mut outgoing = FieldsBuf::new();
        for (name, value) in fields {
            outgoing.push(name, value);
        }
        let held = Arc::new(ContentBudget::default()).hold(Network::from_bits(1), 1);
        let content = QueryContent::new(bytes.into(), &mut outgoing, held.expect("there is room"));
        assert!(!outgoing.fields().contains("content-type"));
        *content.digest()
    }

    #[test]
    fn content_and_its_meaning_are_the_digest() {
        let all = [
            digest("a", &[]),
            digest("b", &[]),
            digest("a", &[("Content-Type", "a")]),
            digest("", &[("Content-Type", "aa")]),
            digest("a", &[("Content-Encoding", "a")]),
            digest("a", &[("Content-Type", "a"), ("Content-Type", "a")]),
            digest("a", &[("Content-Type", "a"), ("Content-Encoding", "a")]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
        let same = digest("a", &[("X", "b"), ("content-type", "a")]);
        assert_eq!(
            same, all[2],
            "other fields and the case of names do not count"
        );
    }

    #[test]
    fn one_network_cannot_take_all_room() {
        let budget = Arc::new(ContentBudget::default());
        let take = |network| budget.hold(Network::from_bits(network), MAX_CONTENT);
        let held: Vec<_> = std::iter::from_fn(|| take(1)).collect();
        assert_eq!(held.len() as u64, MAX_HELD_OF_ONE / MAX_CONTENT);
        let others: Vec<_> = (2..).map_while(take).collect();
        let all = (held.len() + others.len()) as u64;
        assert_eq!(all, MAX_HELD / MAX_CONTENT);
        drop((held, others));
        assert_eq!(*budget.0.lock(), (0, HashMap::new()));
    }
}
