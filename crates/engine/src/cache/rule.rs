//! Purge scopes, and the names that place an entry in them.

use std::fmt;

use bytes::Bytes;
use microcache_policy::tags::{MAX_TAG_LENGTH, Tag, TagKind};
use microcache_policy::{Scheme, Time, VaryNames, glob, key};
use microcache_store::encoding::RecordHead;
use microcache_store::tags::tag_number;
use microcache_store::{Epoch, Stored, TagNumbers};

/// A purge of a scope: issued once, checked against every older entry, and the same in all
/// processes that share a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The unique number, by which a process recognises a rule that it receives twice.
    pub id: u64,
    /// The entries that it covers.
    pub scope: Scope,
    /// Hard or soft.
    pub strength: Strength,
    /// The time at which it was issued.
    pub at: Time,
}

/// The effect of a purge on entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Entries are removed.
    Hard,
    /// Entries become stale: they are served within their stale windows, and refreshed at once.
    Soft,
}

/// The scope of a purge. Hosts are as in keys: in lower case, without the default port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every entry.
    Everything,
    /// All urls of a host, of either scheme.
    Host(Bytes),
    /// All responses of a url, of either scheme, whatever else their keys contain.
    Url {
        /// The host.
        host: Bytes,
        /// Path and query, as in keys.
        target: Bytes,
    },
    /// One variant of a url, and every fetch under way of that url, since it is not known yet which
    /// variant it brings.
    Variant {
        /// The host.
        host: Bytes,
        /// Path and query, as in keys.
        target: Bytes,
        /// The variant's number: see [`variant_number`].
        variant: u64,
    },
    /// All urls of a host, of either scheme, whose path and query begin with this.
    Prefix {
        /// The host.
        host: Bytes,
        /// The beginning of path and query.
        path: Bytes,
    },
    /// All urls of a host, of either scheme, whose path and query match a glob.
    Glob {
        /// The host.
        host: Bytes,
        /// The glob on path and query; `*` matches any run of bytes.
        pattern: Bytes,
    },
    /// All responses with this tag, of any host.
    Tag(Bytes),
    /// All responses of an origin in this group (RFC 9875).
    Group {
        /// The scheme of the origin.
        scheme: Scheme,
        /// Its host.
        host: Bytes,
        /// The group.
        name: Bytes,
    },
}

/// The notation for operators.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Host(host) => write!(f, "the host {}", host.escape_ascii()),
            Self::Url { host, target } => {
                let (host, target) = (host.escape_ascii(), target.escape_ascii());
                write!(f, "the URL {host}{target}")
            }
            Self::Variant {
                host,
                target,
                variant,
            } => {
                let (host, target) = (host.escape_ascii(), target.escape_ascii());
                write!(f, "the variant {variant:016x} of the URL {host}{target}")
            }
            Self::Prefix { host, path } => {
                let (host, path) = (host.escape_ascii(), path.escape_ascii());
                write!(f, "all URLs that begin with {host}{path}")
            }
            Self::Glob { host, pattern } => {
                let (host, pattern) = (host.escape_ascii(), pattern.escape_ascii());
                write!(f, "all URLs that match {host}{pattern}")
            }
            Self::Tag(name) => write!(f, "the tag {}", name.escape_ascii()),
            Self::Group { name, .. } => write!(f, "the group {}", name.escape_ascii()),
        }
    }
}

const HOST: u8 = b'h';
const URL: u8 = b'u';
const PREFIX: u8 = b'p';
const GLOB: u8 = b'w';
const TAG: u8 = b't';
const GROUP: u8 = b'g';
const VARIANT: u8 = b'v';
/// A fetch of a url under way, for rules that cover variants of it.
const FETCH: u8 = b'f';

/// The number of a variant: a hash of its key, the fields it varies on, and their values in its
/// request. The same in every process.
pub fn variant_number(key: &[u8], vary: &VaryNames, selection: &[u8]) -> u64 {
    tag_number(VARIANT, &[key, vary.as_bytes(), selection])
}

impl Scope {
    /// A scope for all urls of a host whose path and query begin with `path`. Every path begins
    /// with a slash.
    pub fn prefixed(host: Bytes, path: Bytes) -> Self {
        if path.starts_with(b"/") {
            Self::Prefix { host, path }
        } else {
            let path = [&b"/"[..], &path].concat().into();
            Self::Prefix { host, path }
        }
    }

    /// The number of the one name that it covers; meaningless for scopes that cover more than one
    /// name.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Everything => 0,
            Self::Host(host) | Self::Prefix { host, .. } | Self::Glob { host, .. } => {
                tag_number(HOST, &[host])
            }
            Self::Url { host, target } => tag_number(URL, &[host, target]),
            Self::Variant { variant, .. } => *variant,
            Self::Tag(name) => tag_number(TAG, &[name]),
            Self::Group { scheme, host, name } => group(*scheme, host, name),
        }
    }

    /// [`Self::number`], and the number of others that it also covers: fetches under way, or responses with too many
    /// tags.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let others = match self {
            Self::Variant { host, target, .. } => Some(tag_number(FETCH, &[host, target])),
            Self::Tag(_) | Self::Group { .. } => Some(TagNumbers::EVERY),
            _ => None,
        };
        [Some(self.number()), others].into_iter().flatten()
    }

    /// Copies its texts to buffers of their own: the buffer they were parsed from may be much
    /// larger.
    pub(super) fn compact(mut self) -> Self {
        for text in self.texts_mut().into_iter().flatten() {
            *text = Bytes::copy_from_slice(text);
        }
        self
    }

    /// The length of its texts in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Everything => 0,
            Self::Host(text) | Self::Tag(text) => text.len(),
            Self::Url { host, target } | Self::Variant { host, target, .. } => {
                host.len() + target.len()
            }
            Self::Prefix { host, path } => host.len() + path.len(),
            Self::Glob { host, pattern } => host.len() + pattern.len(),
            Self::Group { host, name, .. } => host.len() + name.len(),
        }
    }

    fn texts_mut(&mut self) -> [Option<&mut Bytes>; 2] {
        match self {
            Self::Everything => [None, None],
            Self::Host(text) | Self::Tag(text) => [Some(text), None],
            Self::Url { host, target } | Self::Variant { host, target, .. } => {
                [Some(host), Some(target)]
            }
            Self::Prefix { host, path } => [Some(host), Some(path)],
            Self::Glob { host, pattern } => [Some(host), Some(pattern)],
            Self::Group { host, name, .. } => [Some(host), Some(name)],
        }
    }

    /// The prefix or glob that it matches urls against, host included.
    pub(super) fn pattern(&self) -> Vec<u8> {
        match self {
            Self::Prefix { host, path } => [&host[..], path].concat(),
            Self::Glob { host, pattern } => [&host[..], pattern].concat(),
            _ => Vec::new(),
        }
    }
}

/// The encoded form's version.
const VERSION: u8 = 1;
/// The version with the machine's boot behind the time, and the difference between its dates and
/// its uptime.
const VERSION_OF_BOOT: u8 = 2;

impl Rule {
    /// Encodes a rule for the journal and the log. Its time is encoded as in records: the order
    /// must not depend on the clocks at a process's start.
    pub fn encode(&self, epoch: &Epoch) -> Vec<u8> {
        let strength = match self.strength {
            Strength::Hard => b'h',
            Strength::Soft => b's',
        };
        let variant;
        let (kind, parts): (u8, &[&[u8]]) = match &self.scope {
            Scope::Everything => (b'e', &[]),
            Scope::Host(host) => (HOST, &[host]),
            Scope::Url { host, target } => (URL, &[host, target]),
            Scope::Variant {
                host,
                target,
                variant: number,
            } => {
                variant = number.to_le_bytes();
                (VARIANT, &[host, target, &variant])
            }
            Scope::Prefix { host, path } => (PREFIX, &[host, path]),
            Scope::Glob { host, pattern } => (GLOB, &[host, pattern]),
            Scope::Tag(name) => (TAG, &[name]),
            Scope::Group { scheme, host, name } => {
                (GROUP, &[scheme.as_str().as_bytes(), host, name])
            }
        };
        let of_boot = epoch.to_numbers();
        let has_boot = of_boot != [0, 0];
        let version = if has_boot { VERSION_OF_BOOT } else { VERSION };
        let mut out = vec![version, strength, kind];
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&epoch.date_of(self.at).as_millis().to_le_bytes());
        for number in of_boot.iter().filter(|_| has_boot) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for part in parts {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
        out
    }

    /// Decodes a rule, with its time as of this process. `None` if the bytes are not one.
    pub fn decode(bytes: &[u8], epoch: &Epoch) -> Option<Self> {
        let ([version, strength, kind], rest) = bytes.split_first_chunk::<3>()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (at, mut rest) = rest.split_first_chunk()?;
        let mut of_boot = [0; 2];
        match *version {
            VERSION => {}
            VERSION_OF_BOOT => {
                for number in &mut of_boot {
                    let (bytes, after) = rest.split_first_chunk()?;
                    *number = u64::from_le_bytes(*bytes);
                    rest = after;
                }
            }
            _ => return None,
        }
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (part, after) = after.split_at_checked(length)?;
            parts.push(Bytes::copy_from_slice(part));
            rest = after;
        }
        let scope = match (*kind, &parts[..]) {
            (b'e', []) => Scope::Everything,
            (HOST, [host]) => Scope::Host(host.clone()),
            (URL, [host, target]) => Scope::Url {
                host: host.clone(),
                target: target.clone(),
            },
            (VARIANT, [host, target, number]) => Scope::Variant {
                host: host.clone(),
                target: target.clone(),
                variant: u64::from_le_bytes(number[..].try_into().ok()?),
            },
            (PREFIX, [host, path]) => Scope::prefixed(host.clone(), path.clone()),
            (GLOB, [host, pattern]) => Scope::Glob {
                host: host.clone(),
                pattern: pattern.clone(),
            },
            (TAG, [name]) => Scope::Tag(name.clone()),
            (GROUP, [scheme, host, name]) => Scope::Group {
                scheme: match &scheme[..] {
                    b"http" => Scheme::Http,
                    b"https" => Scheme::Https,
                    _ => return None,
                },
                host: host.clone(),
                name: name.clone(),
            },
            _ => return None,
        };
        let strength = match strength {
            b'h' => Strength::Hard,
            b's' => Strength::Soft,
            _ => return None,
        };
        let date = Time::from_millis(u64::from_le_bytes(*at));
        Some(Self {
            id: u64::from_le_bytes(*id),
            scope,
            strength,
            at: epoch.moment(date, of_boot),
        })
    }
}

fn group(scheme: Scheme, host: &[u8], name: &[u8]) -> u64 {
    tag_number(GROUP, &[scheme.as_str().as_bytes(), host, name])
}

/// The numbers of a response's tags and groups, as in rules. A group without a url covers nothing.
pub(crate) fn tag_numbers<'a>(key: &[u8], tags: impl Iterator<Item = Tag<'a>>) -> TagNumbers {
    let mut tags = tags.peekable();
    if tags.peek().is_none() {
        return TagNumbers::NONE;
    }
    let url = key::url_of(key);
    tags.filter_map(|tag| match (tag.kind, url) {
        _ if tag.name.len() > MAX_TAG_LENGTH => Some(TagNumbers::EVERY),
        (TagKind::Tag, _) => Some(tag_number(TAG, &[&tag.name])),
        (TagKind::Group, url) => url.map(|(scheme, host, ..)| group(scheme, host, &tag.name)),
    })
    .collect()
}

/// An entry or a fetch that rules are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleSubject<'a> {
    key: &'a [u8],
    tags: &'a TagNumbers,
    /// The fields that a stored response varies on, and their values in its request. Unknown for a
    /// fetch.
    variant: Option<(&'a VaryNames, &'a [u8])>,
}

impl<'a> RuleSubject<'a> {
    /// A stored response.
    pub(super) fn stored(key: &'a [u8], stored: &'a Stored) -> Self {
        Self::of_variant(key, stored.tags(), stored.vary(), stored.selection())
    }

    /// A stored response of which only the head is read.
    pub(super) fn head(head: &'a RecordHead) -> Self {
        Self::of_variant(&head.key, &head.tags, &head.vary, &head.selection)
    }

    pub(super) const fn of_variant(
        key: &'a [u8],
        tags: &'a TagNumbers,
        vary: &'a VaryNames,
        selection: &'a [u8],
    ) -> Self {
        Self {
            key,
            tags,
            variant: Some((vary, selection)),
        }
    }

    /// A fetch under way, or one that has just ended.
    pub(super) const fn fetch(key: &'a [u8], tags: &'a TagNumbers) -> Self {
        Self {
            key,
            tags,
            variant: None,
        }
    }
}

/// The names by which purges cover an entry.
#[derive(Debug)]
pub(super) struct EntryNames<'a> {
    host: u64,
    url: u64,
    variant: u64,
    /// Host, path and query concatenated.
    location: Vec<u8>,
    tags: &'a TagNumbers,
}

impl<'a> EntryNames<'a> {
    pub(super) fn new(held: RuleSubject<'a>) -> Self {
        let Some((_, host, path, query)) = key::url_of(held.key) else {
            // Not a key of this cache: only a purge of everything covers it.
            return Self {
                host: 0,
                url: 0,
                variant: 0,
                location: Vec::new(),
                tags: held.tags,
            };
        };
        let target = key::join_query(path, query);
        Self {
            host: tag_number(HOST, &[host]),
            url: tag_number(URL, &[host, &target]),
            variant: match held.variant {
                Some((vary, selection)) => variant_number(held.key, vary, selection),
                None => tag_number(FETCH, &[host, &target]),
            },
            location: [host, &target].concat(),
            tags: held.tags,
        }
    }

    /// Checks whether a scope covers it.
    pub(super) fn is_in(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Everything => true,
            Scope::Prefix { .. } => self.location.starts_with(&scope.pattern()),
            Scope::Glob { .. } => self.is_like(&scope.pattern()),
            scope => scope
                .numbers()
                .any(|wanted| self.own().contains(&wanted) || self.tags.contains(wanted)),
        }
    }

    /// Matches a glob against its URL, including the host, which has no `*`.
    pub(super) fn is_like(&self, pattern: &[u8]) -> bool {
        glob::matches(pattern, &self.location)
    }

    /// The numbers of all its names.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.own().into_iter().chain(self.tags.iter())
    }

    /// The numbers of its names but the tags.
    const fn own(&self) -> [u64; 3] {
        [self.host, self.url, self.variant]
    }

    /// The first `length` bytes of its url, host included.
    pub(super) fn begins_with(&self, length: usize) -> Option<&[u8]> {
        self.location.get(..length)
    }
}
