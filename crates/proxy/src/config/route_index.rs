//! Candidates for the route of a request, by its host and by the beginning and the end of its path, so that a site
//! with many routes does not compare a request with each of them.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use microcache_policy::key::without_port;

use super::matcher::{MatchInput, Matcher};
use super::pattern::first_segment;

/// Indices of routes, as bits.
type RouteSet = Box<[u64]>;
type SetsByText = HashMap<Box<[u8]>, RouteSet, FixedState>;

/// The longest host that is looked up; names in DNS have at most 253 bytes.
const LONGEST_HOST: usize = 256;

/// The routes that a request may take, before their other conditions are looked at.
#[derive(Debug)]
pub(crate) struct RouteIndex {
    /// By exact host, in lower case.
    hosts: SetsByText,
    /// Routes that take hosts by a pattern, or all.
    any_host: RouteSet,
    /// By the first segment of the path: see [`first_segment`].
    segments: SetsByText,
    /// Routes that take paths without one certain first segment, or all.
    any_segment: RouteSet,
    /// By the last byte of the path.
    ends: Vec<RouteSet>,
}

impl RouteIndex {
    pub(crate) fn of<'a>(matchers: impl Iterator<Item = &'a Matcher> + Clone) -> Self {
        let count = matchers.clone().count();
        let (hosts, any_host) = sets(count, matchers.clone().map(Matcher::exact_hosts));
        let (segments, any_segment) = sets(count, matchers.clone().map(Matcher::path_segments));
        Self {
            hosts,
            any_host,
            segments,
            any_segment,
            ends: sets_by_end(count, matchers.map(Matcher::path_ends)),
        }
    }

    /// Returns the candidates of a request, in order.
    pub(crate) fn candidates(&self, input: &MatchInput<'_>) -> impl Iterator<Item = usize> + '_ {
        // Another reading of a path may begin and end with other bytes.
        self.taking(input.host(), input.raw_path())
    }

    /// Returns the routes that may match every request that this matcher matches, in order.
    pub(super) fn candidates_to_cover(
        &self,
        matcher: &Matcher,
    ) -> impl Iterator<Item = usize> + '_ {
        // What covers a pattern matches its text.
        let (host, path) = matcher.first_patterns();
        self.taking(host.unwrap_or_default(), path)
    }

    fn taking(&self, host: &[u8], path: Option<&[u8]>) -> impl Iterator<Item = usize> + '_ {
        let by_host = self.by_host(host);
        let by_path = path.map(|path| {
            let by_segment = self.segments.get(first_segment(path));
            (by_segment.unwrap_or(&self.any_segment), self.by_end(path))
        });
        (0..self.any_host.len()).flat_map(move |word| {
            let hosts = by_host[word];
            let all = by_path.map_or(hosts, |(segments, ends)| {
                hosts & segments[word] & ends[word]
            });
            Bits(all).map(move |bit| word * 64 + bit)
        })
    }

    fn by_host(&self, host: &[u8]) -> &[u64] {
        if self.hosts.is_empty() {
            return &self.any_host;
        }
        let name = without_port(host);
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut lower = [0; LONGEST_HOST];
        let Some(lower) = lower.get_mut(..name.len()) else {
            return &self.any_host;
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        self.hosts.get(&*lower).unwrap_or(&self.any_host)
    }

    fn by_end(&self, path: &[u8]) -> &[u64] {
        &self.ends[usize::from(path.last().copied().unwrap_or_default())]
    }
}

/// Returns for each byte the routes of the paths that may end with it.
fn sets_by_end(count: usize, ends: impl Iterator<Item = Option<Vec<u8>>>) -> Vec<RouteSet> {
    let mut by_end = vec![vec![0; count.div_ceil(64)].into_boxed_slice(); 256];
    for (route, ends) in ends.enumerate() {
        match ends {
            Some(ends) if !ends.is_empty() => {
                for end in ends {
                    insert(&mut by_end[usize::from(end)], route);
                }
            }
            _ => by_end.iter_mut().for_each(|set| insert(set, route)),
        }
    }
    by_end
}

/// Returns the routes of each text, and those of no certain text. The sets of a text contain the latter.
fn sets(count: usize, texts: impl Iterator<Item = Option<Vec<Vec<u8>>>>) -> (SetsByText, RouteSet) {
    let mut any: RouteSet = vec![0; count.div_ceil(64)].into();
    let mut certain = Vec::new();
    for (route, texts) in texts.enumerate() {
        match texts {
            Some(texts) if !texts.is_empty() => {
                certain.extend(texts.into_iter().map(|text| (text, route)));
            }
            _ => insert(&mut any, route),
        }
    }
    let mut by_text = SetsByText::default();
    for (text, route) in certain {
        let set = by_text.entry(text.into()).or_insert_with(|| any.clone());
        insert(set, route);
    }
    (by_text, any)
}

fn insert(set: &mut RouteSet, route: usize) {
    set[route / 64] |= 1 << (route % 64);
}

/// The positions of the bits of a word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let lowest = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(lowest)
    }
}
