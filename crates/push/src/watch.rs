//! Several documents, or all that are like a pattern, in one subscription.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_policy::{is_event_stream, query};
use tokio::time::timeout;

use crate::answer;
use crate::events::Form;
use crate::name::{MAX_NAME, Pattern, Prefix};
use crate::origin::{Documents, Push};
use crate::page::{News, Page, Watching};
use crate::subscription::{EventStream, NoSubscription, Subscription};

/// Where they are subscribed to.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";

/// Where the script is that makes a page update itself.
pub const LIVE_PATH: &str = "/.well-known/microcache/live.js";
const LIVE: &[u8] = include_bytes!("live.js");

/// The most urls of one subscription, and how many of them may have a star.
const MAX_URLS: usize = 100;
const MAX_STARS: usize = 8;
/// How long somebody waits for something to happen who asks again and again.
const WAIT: Duration = Duration::from_secs(25);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// The most changes, and bytes, that are told at once to somebody who asks again and again.
const MAX_TOLD: usize = 1000;
const MAX_TOLD_BYTES: usize = 1024 * 1024;

/// Finds a page of the application that whoever sends a request wants to watch, by its path and query.
pub type FindPage = Box<dyn Fn(&OriginRequest, &str) -> Result<Arc<Page>, NoPage> + Send + Sync>;

/// Why a page cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// Its route says so.
    NotAllowed,
    /// All routes do.
    NoneAllowed,
    /// Too many are.
    TooMany,
}

/// What is answered at [`WATCH_PATH`] and [`LIVE_PATH`].
pub struct Watch {
    push: Arc<Push>,
    prefixes: Vec<Prefix>,
    find_page: FindPage,
}

/// What somebody asks for.
struct Wanted {
    patterns: Vec<Pattern>,
    pages: Vec<Watching>,
    seen: Option<String>,
    wants_deltas: bool,
    wait: Duration,
}

impl Watch {
    /// For documents under these prefixes, and pages.
    pub fn new(push: Arc<Push>, prefixes: Vec<Prefix>, find_page: FindPage) -> Self {
        Self {
            push,
            prefixes,
            find_page,
        }
    }

    async fn watch(&self, request: &OriginRequest) -> OriginResponse {
        let wanted = match self.read(request) {
            Ok(wanted) => wanted,
            Err(refused) => return refused,
        };
        let wait = wanted.wait;
        let subscription = match wanted.subscribe(self.push.documents()) {
            Ok(subscription) => subscription,
            Err(why) => return answer::no_subscription(why),
        };
        let accepts = request.fields.fields().get("accept").unwrap_or_default();
        if accepts.split(|&byte| byte == b',').any(is_event_stream) {
            answer::events(EventStream::new(subscription, Form::Told))
        } else {
            first_changes(subscription, wait).await
        }
    }

    fn read(&self, request: &OriginRequest) -> Result<Wanted, OriginResponse> {
        let refused = |why: String| answer::problem(400, why);
        let mut urls = Vec::new();
        let (_, query) = split_query(&request.target);
        let mut wanted = Wanted {
            patterns: Vec::new(),
            pages: Vec::new(),
            seen: None,
            wants_deltas: false,
            wait: WAIT,
        };
        for parameter in query.into_iter().flat_map(query::parameters) {
            let equals = parameter.iter().position(|&byte| byte == b'=');
            let (name, value) = parameter.split_at(equals.unwrap_or(parameter.len()));
            let value = query::decoded(value).skip(1).collect();
            let value = String::from_utf8(value)
                .map_err(|_| refused("the query is not UTF-8".to_owned()))?;
            match name {
                // Several tabs may show the same page.
                b"url" if urls.contains(&value) => {}
                b"url" if urls.len() == MAX_URLS => {
                    let why = format!("one subscription has {MAX_URLS} urls at most");
                    return Err(refused(why));
                }
                b"url" => {
                    if let Some(pattern) = self.pattern(&value).map_err(refused)? {
                        wanted.patterns.push(pattern);
                    } else {
                        wanted.pages.push(self.page(request, &value)?);
                    }
                    urls.push(value);
                }
                b"version" => {
                    if let Some(page) = wanted.pages.last_mut() {
                        page.has(u64::from_str_radix(&value, 16).ok());
                    }
                }
                b"last_event_id" | b"lastEventID" => wanted.seen = Some(value),
                b"deltas" => wanted.wants_deltas = value != "0",
                b"wait" => wanted.wait = wait(&value).map_err(refused)?,
                _ => {}
            }
        }
        // What a browser says when it comes back is newer than what the url says.
        if let Some(seen) = request.fields.fields().get("last-event-id") {
            wanted.seen = Some(String::from_utf8_lossy(seen).into_owned());
        }
        let stars = wanted.patterns.iter().filter(|pattern| pattern.is_like());
        if stars.count() > MAX_STARS {
            return Err(refused(format!(
                "one subscription has {MAX_STARS} urls with a `*` at most"
            )));
        }
        if wanted.patterns.is_empty() && wanted.pages.is_empty() {
            return Err(refused(format!(
                "say what to watch: {WATCH_PATH}?url=/a/page, or url=/live/*"
            )));
        }
        Ok(wanted)
    }

    /// What names documents; `None` for a url that is a page's.
    fn pattern(&self, url: &str) -> Result<Option<Pattern>, String> {
        let begins_with = url.split('*').next().unwrap_or_default();
        let mut prefixes = self.prefixes.iter().map(Prefix::as_str);
        if prefixes.any(|prefix| begins_with.starts_with(prefix)) {
            let pattern = Pattern::parse(url).map_err(|why| format!("{url}: {why}"))?;
            return Ok(Some(pattern));
        }
        let is_target = url.starts_with('/') && url.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_target || url.contains('#') || url.len() > MAX_NAME {
            return Err(format!(
                "{url} is neither the path of documents nor path and query of a page, as they stand in a request"
            ));
        }
        Ok(None)
    }

    fn page(&self, request: &OriginRequest, url: &str) -> Result<Watching, OriginResponse> {
        // Stars say nothing of pages. Who means several is told so, and who has one with a star in its url gets
        // along without; the other pages of the same browser are none the worse.
        let found = if url.contains('*') {
            Err(NoPage::NotAllowed)
        } else {
            (self.find_page)(request, url)
        };
        match found {
            Ok(page) => Ok(Watching::new(page)),
            Err(NoPage::NotAllowed) => {
                let page = Page::new(url);
                page.tell(News::Unwatchable);
                Ok(Watching::new(Arc::new(page)))
            }
            Err(NoPage::NoneAllowed) => Err(answer::problem(
                400,
                format!("{url} is no document, and pages are not watched: see the option `watch`"),
            )),
            Err(NoPage::TooMany) => Err(answer::later(answer::problem(
                503,
                "too many different pages are watched (watch_max_pages)",
            ))),
        }
    }
}

impl Wanted {
    fn subscribe(self, documents: &Arc<Documents>) -> Result<Subscription, NoSubscription> {
        Subscription::new(
            documents,
            (&self.patterns, self.pages),
            self.seen.as_deref(),
            self.wants_deltas,
        )
    }
}

/// All that has happened, or what happens first.
async fn first_changes(mut subscription: Subscription, wait: Duration) -> OriginResponse {
    let mut told = BytesMut::from(&b"{\"events\":["[..]);
    let mut next = timeout(wait, subscription.next_json()).await.ok();
    let mut count = 0;
    while let Some(event) = next {
        if count > 0 {
            told.put_u8(b',');
        }
        told.extend_from_slice(&event);
        count += 1;
        let has_room = count < MAX_TOLD && told.len() < MAX_TOLD_BYTES;
        next = has_room.then(|| subscription.next_json_at_hand()).flatten();
    }
    told.extend_from_slice(
        format!("],\"last_event_id\":\"{}\"}}", subscription.place()).as_bytes(),
    );
    let mut answer = answer::whole(200, "application/json", Bytes::from(told));
    answer.fields.push("Cache-Control", "no-store");
    answer
}

fn wait(value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.filter(|wait| *wait <= LONGEST_WAIT).ok_or_else(|| {
        format!(
            "wait is a number of seconds, {} at most",
            LONGEST_WAIT.as_secs()
        )
    })
}

impl Origin for Watch {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let (path, _) = split_query(&request.target);
            if !matches!(request.method, Method::GET | Method::HEAD) {
                let mut answer = answer::problem(405, "changes are watched by GET");
                answer.fields.push("Allow", "GET, HEAD");
                return Ok(answer);
            }
            Ok(if path == LIVE_PATH.as_bytes() {
                live()
            } else {
                self.watch(&request).await
            })
        })
    }
}

/// What makes a page update itself.
fn live() -> OriginResponse {
    let mut answer = answer::whole(
        200,
        "text/javascript; charset=utf-8",
        Bytes::from_static(LIVE),
    );
    answer.fields.push("Cache-Control", "max-age=3600");
    answer.fields.push("X-Content-Type-Options", "nosniff");
    answer
}
