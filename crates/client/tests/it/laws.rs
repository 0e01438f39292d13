//! Laws of a private cache: each answer to any sequence of requests is one that RFC 9111 allows, and a request
//! that needs no server reaches none. A server answers by chance, and keeps a record of its answers; those of
//! the cache are compared with the record.
//!
//! `CLIENT_LAWS_SEED` begins elsewhere, `CLIENT_LAWS_RUNS` goes on for longer.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Method};
use microcache_client::{CacheMode, CacheOptions, Outcome};
use tokio::time::{Instant, advance};

use crate::support::{Client, Got, Site, no_body, page, request};

const RUNS: u64 = 400;
const STEPS: usize = 40;

/// Numbers by chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What a page says of its own caching.
#[derive(Clone, Copy, Debug)]
struct Words {
    text: &'static str,
    fresh: u64,
    /// How long it may be used stale while it is refreshed, and when the server fails.
    stale: u64,
    on_error: u64,
    never_stale: bool,
    stored: bool,
}

const fn words(text: &'static str, fresh: u64, stale: u64, on_error: u64) -> Words {
    Words {
        text,
        fresh,
        stale,
        on_error,
        never_stale: false,
        stored: true,
    }
}

const fn never_stale(text: &'static str, fresh: u64, stored: bool) -> Words {
    Words {
        text,
        fresh,
        stale: 0,
        on_error: 0,
        never_stale: true,
        stored,
    }
}

const ALL_WORDS: [Words; 9] = [
    words("max-age=10", 10, 0, 0),
    words("private, max-age=20, s-maxage=1", 20, 0, 0),
    words("max-age=5, stale-while-revalidate=10", 5, 10, 0),
    words("max-age=5, stale-if-error=30, proxy-revalidate", 5, 0, 30),
    words("s-maxage=100", 0, 0, 0),
    never_stale("max-age=5, must-revalidate, stale-if-error=30", 5, true),
    never_stale("no-cache", 0, true),
    never_stale("no-store", 0, false),
    never_stale("max-age=0, must-revalidate", 0, true),
];

/// A request: the page, the user, and the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    page: u64,
    user: u64,
    language: u64,
}

/// The server: pages that change now and then, and what each of their versions was.
#[derive(Default)]
struct Books {
    words: Vec<Words>,
    /// The version of a page by now.
    versions: HashMap<u64, u64>,
    is_down: bool,
}

impl Books {
    fn change(&mut self, page: u64) {
        *self.versions.entry(page).or_default() += 1;
    }

    fn version(&self, page: u64) -> u64 {
        self.versions.get(&page).copied().unwrap_or_default()
    }
}

fn number(text: Option<&HeaderValue>) -> u64 {
    text.and_then(|text| text.to_str().ok()?.parse().ok())
        .unwrap_or_default()
}

fn site(books: &Arc<Mutex<Books>>) -> Site {
    let books = Arc::clone(books);
    Site::later(move |_, request| {
        let mut books = books.lock().unwrap();
        if books.is_down {
            return Box::pin(async { Err(io::Error::other("down")) });
        }
        let place: u64 = request.uri().path()[1..].parse().unwrap();
        let headers = request.headers();
        let (user, language) = (
            number(headers.get("authorization")),
            number(headers.get("accept-language")),
        );
        if request.method() == Method::POST {
            books.change(place);
        }
        let version = books.version(place);
        let body = format!("{place} {user} {language} {version}");
        let tag = format!("\"{version}-{user}-{language}\"");
        let is_same = headers
            .get("if-none-match")
            .is_some_and(|known| *known == *tag);
        let mut response = page(body, &[("vary", "accept-language")]);
        let words = HeaderValue::from_static(books.words[place as usize].text);
        response.headers_mut().insert("cache-control", words);
        response.headers_mut().insert("etag", tag.parse().unwrap());
        if is_same {
            *response.status_mut() = http::StatusCode::NOT_MODIFIED;
            *response.body_mut() = no_body();
        }
        Box::pin(async { Ok(response) })
    })
}

/// One thing that happens.
#[derive(Clone, Copy)]
enum Step {
    Wait(u64),
    Get(Wanted, CacheMode),
    Post(Wanted),
    Change(u64),
    Down(bool),
}

impl Step {
    fn by(chance: &mut Chance) -> Self {
        let wanted = Wanted {
            page: chance.below(4),
            user: chance.below(3),
            language: chance.below(2),
        };
        let modes = [
            CacheMode::Default,
            CacheMode::Default,
            CacheMode::Default,
            CacheMode::NoStore,
            CacheMode::Reload,
            CacheMode::NoCache,
            CacheMode::ForceCache,
            CacheMode::OnlyIfCached,
        ];
        match chance.below(12) {
            0 | 1 => Self::Wait(chance.of(&[1, 3, 7, 15, 40])),
            2 => Self::Change(wanted.page),
            3 => Self::Post(wanted),
            4 => Self::Down(chance.below(3) == 0),
            _ => Self::Get(wanted, chance.of(&modes)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(seconds) => write!(f, "{seconds} s pass"),
            Self::Get(wanted, mode) => write!(f, "GET {wanted:?} {mode:?}"),
            Self::Post(wanted) => write!(f, "POST {wanted:?}"),
            Self::Change(page) => write!(f, "page {page} changes"),
            Self::Down(is_down) => write!(f, "down: {is_down}"),
        }
    }
}

/// What is known of what the cache has: when it was last brought or confirmed, and which version it is.
type Known = HashMap<Wanted, (Instant, u64)>;

struct World {
    books: Arc<Mutex<Books>>,
    site: Site,
    client: Client,
    known: Known,
}

impl World {
    async fn new(chance: &mut Chance) -> Self {
        let words = (0..4).map(|_| chance.of(&ALL_WORDS)).collect();
        let books = Arc::new(Mutex::new(Books {
            words,
            ..Books::default()
        }));
        let site = site(&books);
        let client = Client::private(&site).await;
        Self {
            books,
            site,
            client,
            known: Known::new(),
        }
    }

    async fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Wait(seconds) => advance(Duration::from_secs(seconds)).await,
            Step::Change(page) => self.books.lock().unwrap().change(page),
            Step::Down(is_down) => self.books.lock().unwrap().is_down = is_down,
            Step::Post(wanted) => {
                let mut post = request_of(wanted, CacheMode::Default);
                *post.method_mut() = Method::POST;
                if self.client.send(post).await.is_ok() {
                    // The page has changed, for all holders of a copy.
                    self.known.retain(|one, _| one.page != wanted.page);
                }
            }
            Step::Get(wanted, mode) => return self.get(wanted, mode).await,
        }
        Ok(())
    }

    async fn get(&mut self, wanted: Wanted, mode: CacheMode) -> Result<(), String> {
        let (words, is_down) = {
            let books = self.books.lock().unwrap();
            (books.words[wanted.page as usize], books.is_down)
        };
        let sent_before = self.site.request_count();
        let answer = self.client.send(request_of(wanted, mode)).await;
        let got = match answer {
            Ok(response) => crate::support::whole(response).await,
            Err(_) if is_down && mode != CacheMode::OnlyIfCached => {
                return self.may_fail(wanted, words, mode);
            }
            Err(error) => return Err(format!("an error for no reason: {error}")),
        };
        let reached_server = self.site.request_count() > sent_before;
        crate::support::settle().await;
        let age = self
            .known
            .get(&wanted)
            .map(|(at, _)| at.elapsed().as_secs());
        if reached_server && mode == CacheMode::Default && age.is_some_and(|age| age < words.fresh)
        {
            return Err("the server was asked for what is fresh".to_owned());
        }
        if got.outcome() == Outcome::Module {
            return self.may_have_nothing(wanted, words, mode);
        }
        self.check(wanted, mode, words, &got, reached_server)?;
        if got.outcome() == Outcome::Stale
            && !reached_server
            && self.site.request_count() > sent_before
            && !is_down
        {
            // It was refreshed meanwhile.
            let version = self.books.lock().unwrap().version(wanted.page);
            self.known.insert(wanted, (Instant::now(), version));
        }
        Ok(())
    }

    /// The server is down: only where nothing may stand in is that the caller's to see.
    fn may_fail(&self, wanted: Wanted, words: Words, mode: CacheMode) -> Result<(), String> {
        let age = self
            .known
            .get(&wanted)
            .map(|(at, _)| at.elapsed().as_secs());
        let passes = matches!(
            mode,
            CacheMode::NoStore | CacheMode::Reload | CacheMode::NoCache
        );
        match age {
            Some(age)
                if !passes
                    && words.stored
                    && age < words.fresh + words.stale.max(words.on_error) =>
            {
                Err(format!("it failed, and there is a copy of {age} s"))
            }
            _ => Ok(()),
        }
    }

    fn may_have_nothing(
        &self,
        wanted: Wanted,
        words: Words,
        mode: CacheMode,
    ) -> Result<(), String> {
        if mode != CacheMode::OnlyIfCached {
            return Err("a 504 that nobody has asked for".to_owned());
        }
        match self.known.get(&wanted) {
            Some((at, _))
                if words.stored && (!words.never_stale || at.elapsed().as_secs() < words.fresh) =>
            {
                Err("there is a copy that may be used".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check(
        &mut self,
        wanted: Wanted,
        mode: CacheMode,
        words: Words,
        got: &Got,
        reached_server: bool,
    ) -> Result<(), String> {
        let books = self.books.lock().unwrap();
        let body: Vec<u64> = got
            .body()
            .split(' ')
            .map(|text| text.parse().unwrap())
            .collect();
        let [page, user, language, version] = body[..] else {
            return Err(format!("a body of nobody's: {}", got.body()));
        };
        if (Wanted {
            page,
            user,
            language,
        }) != wanted
        {
            return Err(format!("it is somebody else's: {}", got.body()));
        }
        let from_the_server = reached_server
            && matches!(
                got.outcome(),
                Outcome::Miss | Outcome::Bypass | Outcome::Validated
            );
        if from_the_server {
            if version != books.version(page) {
                return Err(format!("version {version} is not what the server has"));
            }
            if words.stored && mode != CacheMode::NoStore {
                self.known.insert(wanted, (Instant::now(), version));
            }
            return Ok(());
        }
        if mode == CacheMode::OnlyIfCached && reached_server {
            return Err("the server was asked".to_owned());
        }
        let Some(&(at, known)) = self.known.get(&wanted) else {
            return Err("it was never given, or is not to be used any more".to_owned());
        };
        if version < known {
            return Err(format!("version {version} after {known}"));
        }
        let age = at.elapsed().as_secs();
        let may_be_stale =
            matches!(mode, CacheMode::ForceCache | CacheMode::OnlyIfCached) && !words.never_stale;
        let most = words.fresh
            + words
                .stale
                .max(if books.is_down { words.on_error } else { 0 });
        if matches!(
            mode,
            CacheMode::NoStore | CacheMode::Reload | CacheMode::NoCache
        ) {
            return Err("it was to come from the server".to_owned());
        }
        if !may_be_stale && age >= most.max(1) {
            return Err(format!("it is {age} s old, and good for {most} s"));
        }
        Ok(())
    }
}

fn request_of(
    wanted: Wanted,
    mode: CacheMode,
) -> http::Request<http_body_util::Empty<bytes::Bytes>> {
    let (user, language) = (wanted.user.to_string(), wanted.language.to_string());
    let mut lines = vec![("accept-language", &language[..])];
    // A request without an identity.
    if wanted.user > 0 {
        lines.push(("authorization", &user));
    }
    let mut request = request(&format!("/{}", wanted.page), &lines);
    request
        .extensions_mut()
        .insert(CacheOptions::default().with_mode(mode));
    request
}

#[tokio::test(start_paused = true)]
async fn every_response_is_allowed_by_rfc_9111() {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = variable("CLIENT_LAWS_SEED").unwrap_or(1);
    for seed in first..first + variable("CLIENT_LAWS_RUNS").unwrap_or(RUNS) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new(&mut chance).await;
        let mut story = Vec::new();
        for _ in 0..STEPS {
            let step = Step::by(&mut chance);
            story.push(step.to_string());
            if let Err(fault) = world.take(step).await {
                let words = &world.books.lock().unwrap().words;
                let words: Vec<_> = words.iter().map(|words| words.text).collect();
                panic!(
                    "seed {seed}: {fault}\npages: {words:?}\n{}",
                    story.join("\n")
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_without_key_makes_copies_of_all_keys_invalid() {
    let books = Arc::new(Mutex::new(Books {
        words: vec![ALL_WORDS[0]],
        ..Books::default()
    }));
    let site = site(&books);
    let client = Client::private(&site).await;
    let wanted = Wanted {
        page: 0,
        user: 1,
        language: 0,
    };
    let keyed = |key: &'static str| {
        let mut get = request_of(wanted, CacheMode::Default);
        let options = CacheOptions::default().with_key(key);
        get.extensions_mut().insert(options);
        get
    };
    for times in [2, 2] {
        for key in ["a", "b", "a", "b"] {
            client.send(keyed(key)).await.expect("an answer");
        }
        assert_eq!(site.request_count(), times);
    }
    let mut post = request_of(wanted, CacheMode::Default);
    *post.method_mut() = Method::POST;
    client.send(post).await.expect("an answer");
    for key in ["a", "b"] {
        let got = client.send(keyed(key)).await.expect("an answer");
        let body = crate::support::whole(got).await;
        assert_eq!(body.body(), "0 1 0 1");
    }
    assert_eq!(site.request_count(), 5);
}
