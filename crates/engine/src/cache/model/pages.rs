//! The pages of the model, and the purges that cover them.

use bytes::Bytes;
use microcache_policy::{Scheme, Time, VaryNames};
use microcache_store::{Key, Stored};

use super::super::{Scope, Strength, testing, variant_number};

pub(super) const HOSTS: [&str; 2] = ["a.example", "b.example"];
pub(super) const PATHS: [&str; 4] = ["/", "/news/1", "/news/2", "/shop?x=1"];
const TAGS: [&str; 3] = ["red", "green", "blue"];

/// Patterns, and the paths that they match.
const PATTERNS: [(&str, [bool; 4]); 3] = [
    ("/*", [true; 4]),
    ("/*/2", [false, false, true, false]),
    ("*?x=*", [false, false, false, true]),
];

/// A small generator of numbers; the same seed gives the same run.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

/// A url: the numbers of a host and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Url(usize, usize);

impl Url {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..HOSTS.len()).flat_map(|host| (0..PATHS.len()).map(move |path| Self(host, path)))
    }

    pub(super) fn any(chance: &mut Chance) -> Self {
        Self(chance.below(HOSTS.len()), chance.below(PATHS.len()))
    }

    pub(super) fn key(self) -> Key {
        testing::key_of(Scheme::Http, HOSTS[self.0], PATHS[self.1])
    }
}

/// The response of one fetch of a url.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) url: Url,
    tag: usize,
}

impl Page {
    pub(super) fn any(chance: &mut Chance, url: Url) -> Self {
        let tag = chance.below(TAGS.len());
        Self { url, tag }
    }

    /// The response that fetch `number` brings, begun at that time.
    pub(super) fn stored(self, number: usize, began: Time) -> Stored {
        let tag = TAGS[self.tag];
        let lines =
            format!("Cache-Control: max-age=100000\r\nCache-Tag: {tag}\r\nX-Number: {number}\r\n");
        testing::stored(&self.url.key(), &lines, began)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Purge {
    Key(Url),
    Rule(Scope, Strength),
}

impl Purge {
    pub(super) fn any(chance: &mut Chance) -> Self {
        let url = Url::any(chance);
        let (host, path) = (HOSTS[url.0], PATHS[url.1]);
        let name = Bytes::from_static(host.as_bytes());
        let scope = match chance.below(13) {
            0..4 => return Self::Key(url),
            4 => Scope::Everything,
            5 => Scope::Host(name),
            6 => Scope::Url {
                host: name,
                target: Bytes::from_static(path.as_bytes()),
            },
            7 => {
                let pattern = PATTERNS[chance.below(PATTERNS.len())].0;
                Scope::Glob {
                    host: name,
                    pattern: Bytes::from_static(pattern.as_bytes()),
                }
            }
            8 => Scope::Variant {
                host: name,
                target: Bytes::from_static(path.as_bytes()),
                // None of them varies.
                variant: variant_number(&url.key(), &VaryNames::default(), b""),
            },
            9 => {
                let length = chance.below(path.len() + 1);
                Scope::prefixed(name, Bytes::from_static(&path.as_bytes()[..length]))
            }
            _ => Scope::Tag(Bytes::from_static(
                TAGS[chance.below(TAGS.len())].as_bytes(),
            )),
        };
        let soft = chance.below(3) == 0;
        let strength = if soft { Strength::Soft } else { Strength::Hard };
        Self::Rule(scope, strength)
    }

    /// Checks whether the purge covers a page, by the plainest definition.
    pub(super) fn names(&self, page: Page) -> bool {
        let (host, path) = (HOSTS[page.url.0], PATHS[page.url.1]);
        match self {
            Self::Key(url) => *url == page.url,
            Self::Rule(scope, _) => match scope {
                Scope::Everything => true,
                Scope::Host(name) => name == host,
                Scope::Url { host: name, target }
                | Scope::Variant {
                    host: name, target, ..
                } => name == host && target == path,
                Scope::Prefix {
                    host: name,
                    path: start,
                } => name == host && path.as_bytes().starts_with(start),
                Scope::Glob {
                    host: name,
                    pattern,
                } => {
                    let known = PATTERNS.iter().find(|known| *pattern == known.0);
                    name == host && known.expect("one of ours").1[page.url.1]
                }
                Scope::Tag(name) => name == TAGS[page.tag],
                Scope::Group { .. } => false,
            },
        }
    }

    pub(super) fn is_soft(&self) -> bool {
        matches!(self, Self::Rule(_, Strength::Soft))
    }

    /// Checks whether the purge covers every response of a url.
    pub(super) fn names_url(&self, url: Url) -> bool {
        !matches!(self, Self::Rule(Scope::Tag(_), _)) && self.names(Page { url, tag: 0 })
    }
}
