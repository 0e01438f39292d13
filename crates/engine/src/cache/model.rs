//! The cache against a model: fetches begin and end, purges of all kinds come in between, and after each
//! step what the cache answers is held against what it must, and must not, have.
//!
//! `CACHE_MODEL_SEED` and `CACHE_MODEL_RUNS` search elsewhere and for longer.

use std::env;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_policy::{
    Fields, OriginView, RequestFacts, ResponseFacts, Rules, Scheme, Storable, Time, VaryNames, key,
    storable,
};
use microcache_store::{Content, Hit, Key, MemoryLimits, Stored, Tiers};

use super::flight::{Entry, FlightLimits, Leader};
use super::{Cache, ChangeKind, Scope, Strength, tag_numbers};
use crate::clock::Clock;
use crate::origin::Urgency;

const HOSTS: [&str; 2] = ["a.example", "b.example"];
const PATHS: [&str; 4] = ["/", "/news/1", "/news/2", "/shop?x=1"];
const TAGS: [&str; 3] = ["red", "green", "blue"];
const STEPS: usize = 200;

/// What is known of one fetch.
struct Fetch {
    page: Page,
    /// The step in which it began, and the one in which it was committed.
    began: usize,
    committed: Option<usize>,
    number: u64,
    /// It was still under way when a rule was forgotten that is newer: then it is not stored.
    is_too_old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    host: usize,
    path: usize,
    tag: usize,
}

#[derive(Clone, Debug)]
enum Purge {
    Key(usize, usize),
    Rule(Scope, Strength),
}

/// A small generator of numbers; the same seed gives the same run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

impl Page {
    fn any(chance: &mut Chance) -> Self {
        Self {
            host: chance.below(HOSTS.len()),
            path: chance.below(PATHS.len()),
            tag: chance.below(TAGS.len()),
        }
    }

    fn key(self) -> Key {
        key_of(self.host, self.path)
    }
}

fn key_of(host: usize, path: usize) -> Key {
    let (host, path) = (HOSTS[host].as_bytes(), PATHS[path].as_bytes());
    let rules = Rules::default();
    key::build(Scheme::Http, host, path, Fields::default(), false, &rules)[..].into()
}

impl Purge {
    fn any(chance: &mut Chance) -> Self {
        let (host, path) = (chance.below(HOSTS.len()), chance.below(PATHS.len()));
        let name = Bytes::from_static(HOSTS[host].as_bytes());
        let scope = match chance.below(12) {
            0..4 => return Self::Key(host, path),
            4 => Scope::Everything,
            5 => Scope::Host(name),
            6 => {
                let key = key_of(host, path);
                Scope::Url(key::url_part(&key).expect("a key").to_vec().into())
            }
            7 | 8 => {
                let length = chance.below(PATHS[path].len() + 1);
                let path = &PATHS[path].as_bytes()[..length];
                Scope::prefixed(name, Bytes::from_static(path))
            }
            _ => Scope::Tag(Bytes::from_static(
                TAGS[chance.below(TAGS.len())].as_bytes(),
            )),
        };
        let soft = chance.below(3) == 0;
        let strength = if soft { Strength::Soft } else { Strength::Hard };
        Self::Rule(scope, strength)
    }

    /// Whether it names a page, said in the plainest way.
    fn names(&self, page: Page) -> bool {
        let (host, path) = (HOSTS[page.host], PATHS[page.path]);
        match self {
            Self::Key(of_host, of_path) => (*of_host, *of_path) == (page.host, page.path),
            Self::Rule(scope, _) => match scope {
                Scope::Everything => true,
                Scope::Host(name) => name == host,
                Scope::Url(url) => url[..] == *key::url_part(&page.key()).expect("a key"),
                Scope::Prefix {
                    host: name,
                    path: start,
                } => name == host && path.as_bytes().starts_with(start),
                Scope::Tag(name) => name == TAGS[page.tag],
                Scope::Group { .. } => false,
            },
        }
    }

    fn is_soft(&self) -> bool {
        matches!(self, Self::Rule(_, Strength::Soft))
    }
}

/// The cache and all that has happened to it.
struct World {
    cache: Cache,
    chance: Chance,
    step: usize,
    fetches: Vec<Fetch>,
    leading: Vec<(usize, Leader)>,
    purges: Vec<(usize, Purge)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let memory = MemoryLimits {
            capacity: 16 << 20,
            object: 1 << 16,
            variants: 8,
        };
        let flights = FlightLimits {
            fetches: 1_000,
            waiters: 1_000,
        };
        Self {
            cache: Cache::new(memory, flights, Tiers::default(), Clock::start()),
            chance: Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            step: 0,
            fetches: Vec::new(),
            leading: Vec::new(),
            purges: Vec::new(),
        }
    }

    async fn take_a_step(&mut self) {
        self.step += 1;
        match self.chance.below(20) {
            0..8 => self.begin(),
            8..14 => self.commit(),
            14..17 => self.purge(),
            17 => self.cache.sweep().await,
            18 => tokio::time::advance(Duration::from_millis(1)).await,
            _ => {
                // Long enough for rules to be forgotten.
                tokio::time::advance(Duration::from_secs(700)).await;
                self.cache.sweep().await;
                let purges = self.purges.iter();
                let rules = purges.filter(|(_, purge)| matches!(purge, Purge::Rule(..)));
                let newest = rules.map(|(at, _)| *at).max().unwrap_or(0);
                for (number, _) in &self.leading {
                    let fetch = &mut self.fetches[*number];
                    fetch.is_too_old |= fetch.began < newest;
                }
            }
        }
    }

    fn begin(&mut self) {
        let page = Page::any(&mut self.chance);
        let entered = self.cache.enter(&page.key(), b"", &Urgency::Client);
        if let Entry::Lead(leader) = entered {
            self.leading.push((self.fetches.len(), leader));
            self.fetches.push(Fetch {
                page,
                began: self.step,
                committed: None,
                number: self.fetches.len() as u64,
                is_too_old: false,
            });
        } else {
            // Then there is one that began after every purge which names the page by its url.
            let covering = |began: usize| {
                let mut purges = self.purges.iter();
                purges.any(|(at, purge)| {
                    *at > began
                        && purge.names(page)
                        && !matches!(purge, Purge::Rule(Scope::Tag(_), _))
                })
            };
            let mut fetches = self
                .leading
                .iter()
                .map(|(number, _)| &self.fetches[*number]);
            let is_right =
                fetches.any(|fetch| fetch.page.key() == page.key() && !covering(fetch.began));
            assert!(
                is_right,
                "step {}: joins a fetch from before a purge",
                self.step
            );
        }
    }

    fn commit(&mut self) {
        if self.leading.is_empty() {
            return;
        }
        let at = self.chance.below(self.leading.len());
        let (number, leader) = self.leading.swap_remove(at);
        let (page, now) = (self.fetches[number].page, self.cache.clock.now());
        let stored = stored(page, self.fetches[number].number, now);
        let kind = ChangeKind::Stored;
        self.cache
            .commit(&leader, stored, &view(&Rules::default()), None, kind);
        self.fetches[number].committed = Some(self.step);
    }

    fn purge(&mut self) {
        let purge = Purge::any(&mut self.chance);
        match &purge {
            Purge::Key(host, path) => self.cache.purge_key(&key_of(*host, *path)),
            Purge::Rule(scope, strength) => {
                self.cache.decide(scope.clone(), *strength);
            }
        }
        self.purges.push((self.step, purge));
    }

    /// Holds what the cache has for every url against what has happened.
    fn check(&self) {
        for host in 0..HOSTS.len() {
            for path in 0..PATHS.len() {
                let rules = Rules::default();
                let found = self.cache.response(&key_of(host, path), &view(&rules));
                self.check_found(host, path, found.as_ref());
            }
        }
    }

    fn check_found(&self, host: usize, path: usize, found: Option<&Hit>) {
        let of_url = |fetch: &&Fetch| (fetch.page.host, fetch.page.path) == (host, path);
        // The last that was committed and that no purge has named since it began.
        let kept = self.fetches.iter().filter(of_url).filter(|fetch| {
            fetch.committed.is_some() && !fetch.is_too_old && !self.is_named(fetch, |_| true)
        });
        let latest = kept.max_by_key(|fetch| fetch.committed);
        let Some(found) = found else {
            // One that came later, and that is gone, may have taken its place.
            let is_replaced = latest.is_none_or(|latest| {
                let mut later = self.fetches.iter().filter(of_url);
                later.any(|fetch| fetch.committed > latest.committed)
            });
            assert!(
                is_replaced,
                "step {}: what nobody purged is gone",
                self.step
            );
            return;
        };
        let number = number_in(found);
        let fetch = &self.fetches[number];
        let is_stale = found.lifetime.ttl(self.cache.clock.now()) <= 0;
        let hard = self.is_named(fetch, |purge| !purge.is_soft());
        assert!(
            !hard,
            "step {}: fetch {number} is back after a purge",
            self.step
        );
        let soft = self.is_named(fetch, Purge::is_soft);
        assert!(
            !soft || is_stale,
            "step {}: fetch {number} is fresh after a soft purge",
            self.step
        );
    }

    /// Whether such a purge has named what a fetch brought, after it began.
    fn is_named(&self, fetch: &Fetch, counts: impl Fn(&Purge) -> bool) -> bool {
        let mut since = self.purges.iter().filter(|(at, _)| *at > fetch.began);
        since.any(|(_, purge)| purge.names(fetch.page) && counts(purge))
    }
}

fn stored(page: Page, number: u64, now: Time) -> Stored {
    let rules = Rules::default();
    let fields = format!(
        "Cache-Control: max-age=100000\r\nCache-Tag: {}\r\n",
        TAGS[page.tag]
    );
    let fields = Fields::new(fields.as_bytes());
    let facts = RequestFacts::read(&Method::GET, Fields::default(), false, &rules);
    let read = ResponseFacts::read(fields, &rules);
    let Storable::Yes(lifetime) = storable(&facts, 200, &read, now, now) else {
        panic!("it can be stored")
    };
    let tags = read.tags().expect("one tag");
    let tags = tag_numbers(&page.key(), tags.iter());
    let body = Content::from(Bytes::from(number.to_string()));
    let block = fields.as_block();
    let names = VaryNames::default();
    Stored::new(200, block, body, lifetime, names, b"", now).with_tags(tags)
}

fn number_in(found: &Hit) -> usize {
    let body = found.body.bytes().expect("it is in memory");
    let text = std::str::from_utf8(body).expect("a number");
    text.parse().expect("a number")
}

fn view(rules: &Rules) -> OriginView<'_> {
    OriginView {
        fields: Fields::default(),
        rules,
        address: "192.0.2.1",
        vouched: false,
    }
}

fn number_from(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

#[tokio::test(start_paused = true)]
async fn purges_are_never_undone_and_hurt_nothing_else() {
    let first = number_from("CACHE_MODEL_SEED", 1);
    for seed in first..first + number_from("CACHE_MODEL_RUNS", 300) {
        println!("CACHE_MODEL_SEED={seed}");
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.take_a_step().await;
            world.check();
        }
    }
}
