//! Candidates for the route of a request, by its host and the first segment of its path, so that a site with many
//! routes does not compare a request with each of them.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use microcache_policy::key::without_port;

use crate::config::{MatchInput, Route, first_segment};

/// Indices of routes, as bits.
type RouteSet = Box<[u64]>;
type SetsByText = HashMap<Box<[u8]>, RouteSet, FixedState>;

/// The longest host that is looked up; names in DNS have at most 253 bytes.
const LONGEST_HOST: usize = 256;

/// The routes that a request may take, before their other conditions are looked at.
#[derive(Debug)]
pub(super) struct RouteIndex {
    /// By exact host, in lower case.
    hosts: SetsByText,
    /// Routes that take hosts by a pattern, or all.
    any_host: RouteSet,
    /// By the first segment of the path: see [`first_segment`].
    segments: SetsByText,
    /// Routes that take paths without one certain first segment, or all.
    any_segment: RouteSet,
}

impl RouteIndex {
    pub(super) fn of(routes: &[Route]) -> Self {
        let hosts = routes.iter().map(|route| route.matcher.exact_hosts());
        let (hosts, any_host) = sets(routes.len(), hosts);
        let segments = routes.iter().map(|route| route.matcher.path_segments());
        let (segments, any_segment) = sets(routes.len(), segments);
        Self {
            hosts,
            any_host,
            segments,
            any_segment,
        }
    }

    /// Returns the candidates of a request, in order.
    pub(super) fn candidates(&self, input: &MatchInput<'_>) -> impl Iterator<Item = usize> + '_ {
        let by_host = self.by_host(input.host());
        // Another reading of a path may begin with another segment.
        let by_segment = input.raw_path().map(|path| {
            let known = self.segments.get(first_segment(path));
            known.unwrap_or(&self.any_segment)
        });
        (0..self.any_host.len()).flat_map(move |word| {
            let hosts = by_host[word];
            let both = by_segment.map_or(hosts, |segments| hosts & segments[word]);
            Bits(both).map(move |bit| word * 64 + bit)
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
