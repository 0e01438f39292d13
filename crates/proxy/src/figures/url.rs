//! Urls that are kept to be shown, in bounded memory.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use super::top::Named;

/// So many bytes of a url are kept.
pub(super) const MOST: usize = 512;

/// The beginning of a url.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Url {
    /// What distinguishes it from others, however long they are. Nobody outside can tell which two
    /// have the same.
    pub(super) fn hash(named: Named<'_>) -> u64 {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        KEY.hash_one((named.scheme.as_str(), named.host, named.target))
    }

    pub(super) fn new(named: Named<'_>) -> Self {
        let mut url = Self::default();
        url.set(named);
        url
    }

    /// Puts another one in its place.
    pub(super) fn set(&mut self, named: Named<'_>) {
        self.bytes.clear();
        self.is_cut = false;
        for part in [
            named.scheme.as_str().as_bytes(),
            b"://",
            named.host,
            named.target,
        ] {
            let room = MOST - self.bytes.len();
            self.is_cut |= part.len() > room;
            self.bytes.extend_from_slice(&part[..part.len().min(room)]);
        }
        if self.is_cut {
            // Not in the middle of a character.
            while self.bytes.pop_if(|byte| *byte & 0xc0 == 0x80).is_some() {}
            self.bytes.pop_if(|byte| *byte >= 0xc0);
        }
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}
