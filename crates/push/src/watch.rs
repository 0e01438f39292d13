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
use crate::name::Pattern;
use crate::origin::{Documents, Push};
use crate::page::{Page, Watching};
use crate::sites;
use crate::socket::{Language, Pages, Protocol, handshake, is_asked_for};
use crate::stream::EventStream;
use crate::subscription::{NoSubscription, Subscription};
use crate::urls::{Found, MAX_STARS, MAX_URLS, NoUrl, find};

/// Where they are subscribed to.
pub const WATCH_PATH: &str = "/.well-known/microcache/watch";

/// Where the script is that makes a page update itself.
pub const LIVE_PATH: &str = "/.well-known/microcache/live.js";
const LIVE: &[u8] = include_bytes!("live.js");

/// How long somebody waits for something to happen who asks again and again.
const WAIT: Duration = Duration::from_secs(25);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// The most changes, and bytes, that are told at once to somebody who asks again and again.
const MAX_TOLD: usize = 1000;
const MAX_TOLD_BYTES: usize = 1024 * 1024;

/// Finds a page of the application that whoever sends a request wants to watch, by its path and query.
pub type FindPage = Arc<dyn Fn(&OriginRequest, &str) -> Result<Arc<Page>, NoPage> + Send + Sync>;

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
    /// For documents, and pages.
    pub fn new(push: Arc<Push>, find_page: FindPage) -> Self {
        Self { push, find_page }
    }

    async fn watch(&self, request: &OriginRequest) -> OriginResponse {
        let documents = self.push.documents();
        if is_asked_for(request) {
            return self.open(request).unwrap_or_else(|refused| refused);
        }
        let wanted = match self.read(request) {
            Ok(wanted) => wanted,
            Err(refused) => return refused,
        };
        if wanted.is_nothing() {
            let why = format!("say what to watch: {WATCH_PATH}?url=/a/page, or url=/live/*");
            return answer::problem(400, why);
        }
        let wait = wanted.wait;
        let subscription = match wanted.subscribe(documents) {
            Ok(subscription) => subscription,
            Err(why) => return answer::no_subscription(why),
        };
        let accepts = request.fields.fields().get("accept").unwrap_or_default();
        if accepts.split(|&byte| byte == b',').any(is_event_stream) {
            answer::events(EventStream::new(subscription.in_form(Form::Told)))
        } else {
            first_changes(subscription, wait).await
        }
    }

    /// A socket, which may begin with nothing.
    fn open(&self, request: &OriginRequest) -> Result<OriginResponse, OriginResponse> {
        let handshake = handshake(self.push.documents(), request, &[Protocol::Microcache])?;
        let wanted = self.read(request)?;
        let wants_deltas = wanted.wants_deltas;
        let mut subscription = wanted
            .subscribe(self.push.documents())
            .map_err(answer::no_subscription)?;
        subscription.has_nothing();
        let language = Language::Ours {
            pages: Some(Pages::of(request, &self.find_page)),
            wants_deltas,
        };
        Ok(handshake.open(subscription, language))
    }

    fn read(&self, request: &OriginRequest) -> Result<Wanted, OriginResponse> {
        let prefixes = &self.push.documents().settings.prefixes;
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
                b"url" if urls.len() == MAX_URLS => return Err(NoUrl::too_many().answer()),
                b"url" => {
                    let find_page = |url: &str| (self.find_page)(request, url);
                    match find(&value, prefixes, find_page).map_err(NoUrl::answer)? {
                        Found::Documents(pattern) => wanted.patterns.push(pattern),
                        Found::Page(page) => wanted.pages.push(page),
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
            return Err(NoUrl::too_many_stars().answer());
        }
        Ok(wanted)
    }
}

impl Wanted {
    const fn is_nothing(&self) -> bool {
        self.patterns.is_empty() && self.pages.is_empty()
    }

    fn subscribe(self, documents: &Arc<Documents>) -> Result<Subscription, NoSubscription> {
        // Of nothing, nobody has seen anything.
        let seen = self.seen.filter(|_| !self.patterns.is_empty());
        Subscription::new(
            documents,
            (&self.patterns, self.pages),
            seen.as_deref(),
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
            if path == LIVE_PATH.as_bytes() && is_read(&request.method) {
                return Ok(live());
            }
            let fields = request.fields.fields();
            let sites = &self.push.documents().settings.allow_origins;
            let mut answer = if is_read(&request.method) {
                self.watch(&request).await
            } else if let Some(allowed) = sites::preflight(sites, fields) {
                allowed
            } else {
                let mut answer = answer::problem(405, "changes are watched by GET");
                answer.fields.push("Allow", "GET, HEAD");
                answer
            };
            let granted = sites::granted(sites, fields);
            answer.fields.extend_if(granted.fields(), |_, _| true);
            Ok(answer)
        })
    }
}

const fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
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
