//! Urls that are kept to be shown, in bounded memory.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use microcache_policy::key::without_default_port;

use super::top::Named;

/// So many bytes of a url are kept.
pub(super) const MOST: usize = 512;
/// No name is longer; what is, is no host, and is taken as it is written.
const LONGEST_HOST: usize = 255;

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
        let host = without_default_port(named.scheme, named.host);
        let mut lower = [0; LONGEST_HOST];
        let host = match lower.get_mut(..host.len()) {
            Some(lower) => {
                lower.copy_from_slice(host);
                lower.make_ascii_lowercase();
                &*lower
            }
            None => host,
        };
        KEY.hash_one((named.scheme.as_str(), host, named.target))
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
        self.push(named.scheme.as_str().as_bytes());
        self.push(b"://");
        let host = self.bytes.len();
        self.push(without_default_port(named.scheme, named.host));
        self.bytes[host..].make_ascii_lowercase();
        self.push(named.target);
        if self.is_cut {
            // Not in the middle of a character.
            while self.bytes.pop_if(|byte| *byte & 0xc0 == 0x80).is_some() {}
            self.bytes.pop_if(|byte| *byte >= 0xc0);
        }
    }

    /// Adds as much as there is room for.
    fn push(&mut self, part: &[u8]) {
        let room = MOST - self.bytes.len();
        self.is_cut |= part.len() > room;
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
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
