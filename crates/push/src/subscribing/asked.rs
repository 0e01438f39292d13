//! The query parameters of a subscription at [`WATCH_PATH`](crate::paths::WATCH_PATH).

use std::time::Duration;

use microcache_engine::{OriginRequest, OriginResponse};
use microcache_policy::key::split_query;

use crate::access::readers::Shown;
use crate::answer;
use crate::changes::version::{Place, Version};
use crate::documents::Documents;
use crate::documents::client::Client;
use crate::documents::no_url::{MAX_STARS, MAX_URLS, NoUrl};
use crate::form::pairs;
use crate::name::Pattern;
use crate::subscribing::page::{Known, Watching};
use crate::subscribing::stream::MARK;
use crate::subscribing::subscription::Asked;
use crate::subscribing::urls::Found;

/// Default and limit of `wait`: the time after which long polling returns without an event.
const WAIT: Duration = Duration::from_secs(25);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A parsed subscription request.
pub(crate) struct Question {
    pub(crate) asked: Asked,
    pub(crate) wait: Duration,
    /// True if the stream starts with a placeholder id: the `version` and `etag` parameters are outdated when
    /// an `EventSource` reconnects with the same URL, and the id reveals the reconnect.
    pub(crate) is_marked: bool,
}

impl Asked {
    /// Turns a position or a version that Redis has lost into a request for a full snapshot.
    pub(crate) fn held_against(mut self, documents: &Documents) -> Self {
        let place = self.seen.as_deref().map(str::parse::<Place>);
        let seen = place.and_then(Result::ok).into_iter();
        let seen = seen.flat_map(|it| {
            [it.version.number, it.told_whole_through].map(|number| Version {
                number,
                ..it.version
            })
        });
        let has = self.has.iter().map(|(_, version)| *version);
        let books = documents.books.lock();
        let has_lost_some = seen.chain(has).any(|version| books.has_lost(version));
        drop(books);
        if has_lost_some {
            self.seen = Some(String::new());
            self.has.clear();
        }
        self
    }
}

/// A `url` parameter with the validators of each occurrence: several tabs may share a connection and show
/// different versions of the same page.
struct Named {
    url: String,
    found: Found,
    claims: Vec<Claim>,
}

/// The client's copy of a document or page, from the parameters after its `url`.
#[derive(Clone, Default, PartialEq, Eq)]
struct Claim {
    version: Option<String>,
    tag: Option<String>,
}

impl Named {
    /// Returns the validators if all occurrences agree; otherwise none, so that an event is sent.
    fn claim(&self) -> Claim {
        let first = self.claims.first().cloned().unwrap_or_default();
        let is_agreed = self.claims.iter().all(|claim| *claim == first);
        if is_agreed { first } else { Claim::default() }
    }

    fn says(&mut self) -> Option<&mut Claim> {
        self.claims.last_mut()
    }
}

impl Question {
    /// Parses a request; `find` resolves a URL. Fails with the response to send.
    pub(crate) fn read(
        request: &OriginRequest,
        documents: &Documents,
        shown: Shown,
        find: impl Fn(&str) -> Result<Found, NoUrl>,
    ) -> Result<Self, OriginResponse> {
        let refused = |why: String| answer::problem(400, why);
        let mut named: Vec<Named> = Vec::new();
        let mut about = None;
        let (mut asked, mut wait) = (Asked::default(), WAIT);
        let (_, query) = split_query(&request.target);
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair.map_err(|_| refused("the query is not UTF-8".to_owned()))?;
            match &*name {
                "url" => about = Some(name_it(&mut named, value, &find).map_err(NoUrl::answer)?),
                "version" | "etag" => {
                    let one = about.and_then(|at: usize| named.get_mut(at)?.says());
                    match one {
                        Some(claim) if name == "etag" => claim.tag = Some(value),
                        Some(claim) => claim.version = Some(value),
                        None => {}
                    }
                }
                "last_event_id" | "lastEventID" => asked.seen = Some(value),
                "deltas" => asked.wants.deltas = value != "0",
                "inline" => asked.wants.content = value != "0",
                "wait" => wait = read_wait(&value).map_err(refused)?,
                _ => {}
            }
        }
        let fields = request.fields.fields();
        asked.client = Client::of(fields);
        let seen = fields.get("last-event-id").map(String::from_utf8_lossy);
        take_up(&mut asked, named, seen.is_none(), |pattern| {
            documents.may_ask(&shown, pattern)
        })
        .map_err(NoUrl::answer)?;
        asked.reader = shown.reader();
        // The id of a reconnecting browser is newer than that of the URL.
        if let Some(seen) = seen.filter(|seen| seen != MARK) {
            asked.seen = Some(seen.into_owned());
            asked.has.clear();
        }
        Ok(Self {
            is_marked: asked.pages.iter().any(Watching::knows),
            asked,
            wait,
        })
    }

    /// Returns whether no URL is subscribed to.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.asked.documents.is_empty() && self.asked.pages.is_empty()
    }
}

/// Adds a `url` parameter, or another occurrence of it; returns its index.
fn name_it(
    named: &mut Vec<Named>,
    url: String,
    find: impl Fn(&str) -> Result<Found, NoUrl>,
) -> Result<usize, NoUrl> {
    if let Some(at) = named.iter().position(|known| known.url == url) {
        named[at].claims.push(Claim::default());
        return Ok(at);
    }
    if named.len() == MAX_URLS {
        return Err(NoUrl::too_many());
    }
    let found = find(&url)?;
    named.push(Named {
        url,
        found,
        claims: vec![Claim::default()],
    });
    Ok(named.len() - 1)
}

/// Adds the URLs to the request. Validators of pages are ignored on a reconnect, since the client may have
/// received newer events.
fn take_up(
    asked: &mut Asked,
    named: Vec<Named>,
    is_new: bool,
    may_ask: impl Fn(&Pattern) -> Result<(), NoUrl>,
) -> Result<(), NoUrl> {
    for one in named {
        let claim = one.claim();
        match one.found {
            Found::Documents(pattern) => {
                may_ask(&pattern)?;
                let version = claim
                    .version
                    .as_deref()
                    .map(|it| it.trim_matches('"').parse());
                if let (Pattern::Exact(name), Some(Ok(version))) = (&pattern, version) {
                    asked.has.push((name.clone(), version));
                }
                asked.documents.push(pattern);
            }
            Found::Page(mut page) => {
                let version = claim
                    .version
                    .and_then(|it| u64::from_str_radix(&it, 16).ok());
                let known = version.map(Known::Version).or(claim.tag.map(Known::Tag));
                page.has(known.filter(|_| is_new));
                asked.pages.push(page);
            }
        }
    }
    let stars = asked.documents.iter().filter(|pattern| pattern.is_like());
    if stars.count() > MAX_STARS {
        return Err(NoUrl::too_many_stars());
    }
    Ok(())
}

fn read_wait(value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(|| {
        format!(
            "wait is a number of seconds, {} at most",
            LONGEST_WAIT.as_secs()
        )
    })
}
