//! URLs kept for display, in bounded memory.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use microcache_policy::Scheme;
use microcache_policy::key::without_default_port;

/// Limit of a kept URL, in bytes.
pub(super) const MOST: usize = 512;
/// Maximum length of a DNS name; a longer host is hashed as it is.
const LONGEST_HOST: usize = 255;

/// Parts of a request's URL, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct RequestUrl<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) host: &'a [u8],
    pub(crate) target: &'a [u8],
}

/// A URL, possibly cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisplayUrl {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl DisplayUrl {
    /// Keyed hash of the whole URL, so that clients cannot construct collisions.
    pub(super) fn hash(named: RequestUrl<'_>) -> u64 {
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

    pub(super) fn new(named: RequestUrl<'_>) -> Self {
        let mut url = Self::default();
        url.set(named);
        url
    }

    /// Replaces the URL.
    pub(super) fn set(&mut self, named: RequestUrl<'_>) {
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

    /// Appends as much as fits.
    fn push(&mut self, part: &[u8]) {
        let room = MOST - self.bytes.len();
        self.is_cut |= part.len() > room;
        self.bytes.extend_from_slice(&part[..part.len().min(room)]);
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl fmt::Display for DisplayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}
