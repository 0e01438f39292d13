//! A hub of the Mercure protocol: publishers send updates as forms, and subscribers receive those of their
//! topics.
//!
//! The history is one log, limited in bytes, which is also the queue of all subscribers: a subscriber is its
//! selectors, its permissions and the number of the last update delivered to it. A subscriber that falls
//! behind the history is disconnected, and reconnects with the id of its last event.
//!
//! If enabled, the hub also reports presence: authorized subscribers receive an update whenever another
//! subscriber joins or leaves, and may query the list.

mod kept;
mod log;
mod member;
mod members;
mod remembered;
mod selector;
mod subscriber;
mod subscriptions;
#[cfg(test)]
mod tests;
mod token;
mod update;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_store::random;
use parking_lot::{Mutex, RwLock};
use url::Url;

use self::kept::Kept;
use self::member::{Member, Spelling};
use self::remembered::Remembered;
pub(crate) use self::selector::Selectors;
use self::selector::{NoSelector, Selector};
use self::subscriber::Subscriber;
use self::token::{Checked, Grant};
pub(crate) use self::update::Update;
use crate::access::key::Key;
use crate::access::presented::Presented;
use crate::access::sites::{self, Site, WithCookies};
use crate::answer;
use crate::changes::json::essence;
use crate::form::pairs;
use crate::paths::MERCURE_PATH;
use crate::publishing::coming::{Arrivals, NotPublished};
use crate::stats::Counter;
use crate::subscribing::stream::EventStream;
use crate::waiting::Woken;

/// Limit of selectors per subscription.
const MAX_SELECTORS: usize = 100;
/// `Allow` of the hub.
const ALLOWED: &str = "GET, HEAD, POST, OPTIONS";
/// Response fields with the id of the update before the first one sent, in Mercure 0.x and 1.0.
const LAST_EVENT_ID: [&str; 2] = ["Last-Event-ID", "Mercure-Last-Event-ID"];
/// Names of the token cookie, in Mercure 0.x and 1.0.
const COOKIES: &[&[u8]] = &[b"mercureAuthorization", b"__Secure-mercure_access_token"];
/// Media type of publications.
const FORM: &str = "application/x-www-form-urlencoded";

/// Settings of the hub.
#[derive(Clone, Debug)]
pub struct MercureSettings {
    /// Key that verifies publishers' tokens.
    pub publishers: Key,
    /// Key that verifies subscribers' tokens.
    pub subscribers: Key,
    /// Required audience of tokens (`aud`); `None`: any.
    pub audience: Option<String>,
    /// True if subscribers without a token receive public updates.
    pub anonymous: bool,
    /// True if presence is reported to authorized subscribers.
    pub subscriptions: bool,
    /// Other origins whose pages may subscribe; those listed by name may publish too.
    pub allow_origins: Vec<Site>,
    /// Memory limit of the history, in bytes.
    pub history: u64,
    /// Size limit of a publication, in bytes.
    pub max_update: u64,
    /// Limit of concurrent subscribers.
    pub max_subscribers: usize,
}

/// The hub.
pub struct Hub {
    remembered: Mutex<Remembered>,
    selectors: Selectors,
    settings: RwLock<Arc<MercureSettings>>,
    counters: Counters,
    arrivals: Arrivals,
    /// The log on disk, if updates are persisted.
    kept: OnceLock<Kept>,
}

/// Running counters of the hub.
#[derive(Debug, Default)]
struct Counters {
    updates: Counter,
    refused: Counter,
    unwritten: Counter,
    subscribed: Counter,
    turned_away: Counter,
    events: Counter,
    cut_off: Counter,
}

/// Statistics of the hub since its start; the first five are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MercureStats {
    /// Updates in the history.
    pub history: u64,
    /// Memory used by the history, in bytes.
    pub bytes: u64,
    /// Memory limit of the history, in bytes.
    pub capacity: u64,
    /// Current subscribers.
    pub subscribers: u64,
    /// Distinct selectors currently subscribed to.
    pub topics: u64,
    /// Updates published.
    pub updates: u64,
    /// Publications rejected.
    pub refused: u64,
    /// Publications that could not be written to the log.
    pub unwritten: u64,
    /// Subscriptions accepted.
    pub subscribed: u64,
    /// Subscriptions rejected.
    pub turned_away: u64,
    /// Updates handed to connections.
    pub events: u64,
    /// Subscribers disconnected because they fell behind the history.
    pub cut_off: u64,
}

impl Hub {
    /// Creates a hub with an empty history.
    pub fn new(settings: MercureSettings) -> Self {
        Self {
            remembered: Mutex::new(Remembered::new(settings.history)),
            selectors: Selectors::default(),
            settings: RwLock::new(Arc::new(settings)),
            counters: Counters::default(),
            arrivals: Arrivals::default(),
            kept: OnceLock::new(),
        }
    }

    /// Replaces the settings. Existing subscriptions stay.
    pub fn renew(&self, settings: MercureSettings) {
        self.remembered.lock().resize(settings.history);
        *self.settings.write() = Arc::new(settings);
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> MercureStats {
        let (remembered, counters) = (self.remembered.lock(), &self.counters);
        let (published, own) = (&remembered.published, &remembered.own);
        let settings = self.settings();
        let capacity_of_own = if settings.subscriptions {
            own.capacity()
        } else {
            0
        };
        MercureStats {
            history: (published.len() + own.len()) as u64,
            bytes: published.bytes() + own.bytes(),
            capacity: settings.history + capacity_of_own,
            subscribers: remembered.subscribers as u64,
            topics: published.subscribed() as u64,
            updates: counters.updates.get(),
            refused: counters.refused.get(),
            unwritten: counters.unwritten.get(),
            subscribed: counters.subscribed.get(),
            turned_away: counters.turned_away.get(),
            events: counters.events.get(),
            cut_off: counters.cut_off.get(),
        }
    }

    fn settings(&self) -> Arc<MercureSettings> {
        Arc::clone(&self.settings.read())
    }

    /// Verifies a request's token and returns its permissions; `None` without a token.
    fn grant(
        &self,
        presented: Option<&Presented>,
        key: &Key,
        (settings, hub): (&MercureSettings, &Arc<Url>),
    ) -> Result<Option<Grant>, OriginResponse> {
        let Some(presented) = presented else {
            return Ok(None);
        };
        let checked = Checked {
            key,
            audience: settings.audience.as_deref(),
            selectors: &self.selectors,
            hub,
        };
        let grant = checked.grant(&presented.token);
        grant
            .map(Some)
            .map_err(|why| challenge(401, why, " error=\"invalid_token\""))
    }

    fn subscribe(
        self: &Arc<Self>,
        request: &OriginRequest,
    ) -> Result<OriginResponse, OriginResponse> {
        let settings = self.settings();
        let hub = hub_url(request)?;
        let wanted = self.wanted(request, &hub)?;
        let presented = Presented::of(request.fields.fields(), &request.target, COOKIES);
        let grant = self.grant(presented.as_ref(), &settings.subscribers, (&settings, &hub))?;
        let grant = match grant {
            Some(grant) => grant,
            None if settings.anonymous => Grant::default(),
            None => {
                return Err(challenge(
                    401,
                    "subscribing takes a token, see docs/mercure.md",
                    "",
                ));
            }
        };
        // HEAD does not subscribe.
        let is_shown = settings.subscriptions && request.method == Method::GET;
        let member = is_shown.then(|| Member::new(new_id(), &wanted.selectors, &grant.payloads));
        let member = member.transpose();
        let member = member.map_err(|why| challenge(401, why, " error=\"invalid_token\""))?;
        let may_read = (grant.subscribe.into(), grant.ends);
        let seen = wanted.last_event_id.as_deref();
        let selectors: Vec<_> = wanted.selectors.into_iter().map(|(_, it)| it).collect();
        let subscriber = Subscriber::new(self, &selectors, seen, may_read);
        let (mut subscriber, after) =
            subscriber.map_err(|why| answer::later(answer::problem(503, why)))?;
        self.counters.subscribed.add_one();
        if let Some(member) = member {
            subscriber.show(member);
        }
        let mut answer = EventStream::new(subscriber, false).answer();
        if let Some(after) = after {
            for name in LAST_EVENT_ID {
                answer.fields.push(name, &*after);
            }
        }
        Ok(answer)
    }

    fn wanted(&self, request: &OriginRequest, hub: &Arc<Url>) -> Result<Wanted, OriginResponse> {
        let mut wanted = Wanted::default();
        let (_, query) = split_query(&request.target);
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair.map_err(|_| answer::problem(400, "the query is not UTF-8"))?;
            let (spelling, selector) = match &*name {
                "topic" => (Spelling::Topic, self.selectors.topic(&value)),
                "match" | "match_exact" => (Spelling::Exact, Selector::exact(&value)),
                "match_urlpattern" => (Spelling::Pattern, self.selectors.pattern(&value, hub)),
                "lastEventID" | "last_event_id" | "Last-Event-ID" => {
                    wanted.last_event_id = Some(value);
                    continue;
                }
                name if name.to_ascii_lowercase().starts_with("match") => {
                    let why = format!(
                        "{name}: topics are matched by match, match_exact and match_urlpattern"
                    );
                    return Err(answer::problem(400, why));
                }
                _ => continue,
            };
            let selector = selector.map_err(|why| not_a_selector(&name, &value, why))?;
            if wanted.selectors.len() == MAX_SELECTORS {
                let why = format!("one subscription has {MAX_SELECTORS} topics at most");
                return Err(answer::problem(400, why));
            }
            wanted.selectors.push((spelling, selector));
        }
        if wanted.selectors.is_empty() {
            let why = format!("say what to subscribe to: {MERCURE_PATH}?topic=…");
            return Err(answer::problem(400, why));
        }
        // The id of a reconnecting browser is newer than that of the URL.
        if let Some(seen) = request.fields.fields().get("last-event-id") {
            wanted.last_event_id = Some(String::from_utf8_lossy(seen).into_owned());
        }
        Ok(wanted)
    }

    /// Publishes an update and wakes its subscribers.
    fn note(&self, update: Update) {
        let woken = self.remembered.lock().note(update);
        self.counters.updates.add_one();
        woken.into_iter().for_each(Woken::wake);
    }

    async fn publish(
        self: &Arc<Self>,
        request: &mut OriginRequest,
    ) -> Result<OriginResponse, NotPublished> {
        let settings = self.settings();
        let hub = hub_url(request)?;
        let presented = Presented::of(request.fields.fields(), &request.target, COOKIES);
        let grant = self.grant(presented.as_ref(), &settings.publishers, (&settings, &hub))?;
        let Some(grant) = grant else {
            return Err(challenge(401, "publishing takes a token, see docs/mercure.md", "").into());
        };
        if presented.is_some_and(|it| it.is_ambient)
            && !is_from_here(&settings.allow_origins, request)
        {
            let why = "a page of another site may not publish by a cookie; without Origin and Referer nobody may";
            return Err(answer::problem(403, why).into());
        }
        let kind = request
            .fields
            .fields()
            .get("content-type")
            .unwrap_or_default();
        let kind = std::str::from_utf8(kind).unwrap_or_default();
        if essence(kind) != FORM {
            return Err(answer::problem(415, format!("an update is sent as {FORM}")).into());
        }
        let (form, coming) = self
            .arrivals
            .receive(request, "a publication", settings.max_update)
            .await?;
        let update = Update::read(&form, &hub, new_id).map_err(|why| {
            let status = if why.is_too_large() { 413 } else { 400 };
            answer::problem(status, why)
        })?;
        let may = |topic: &Arc<str>| grant.publish.iter().any(|it| it.matches(topic));
        if !update.topics.iter().all(may) {
            let why = "the token does not allow to publish to all of these topics";
            return Err(challenge(403, why, " error=\"insufficient_scope\"").into());
        }
        if update.size() > settings.history {
            let why = "the update is larger than all that is remembered (mercure_history)";
            return Err(answer::problem(413, why).into());
        }
        let id = Arc::clone(&update.id);
        if let Some(kept) = self.kept.get() {
            let published = self.keep(kept, update, coming).await;
            published.map_err(|why| answer::later(answer::problem(503, why)))?;
        } else {
            self.note(update);
        }
        let id = Bytes::copy_from_slice(id.as_bytes());
        let mut answer = answer::whole(200, "text/plain; charset=utf-8", id);
        answer.fields.push("Cache-Control", "no-store");
        Ok(answer)
    }
}

/// Returns whether a cookie was sent by a page of this host or of a listed origin.
fn is_from_here(sites: &[Site], request: &OriginRequest) -> bool {
    sites::may_change(sites, request.fields.fields(), &request.authority)
}

/// The parsed query of a subscription.
#[derive(Default)]
struct Wanted {
    selectors: Vec<(Spelling, Selector)>,
    last_event_id: Option<String>,
}

/// Returns the URL of the hub as the client addresses it.
fn hub_url(request: &OriginRequest) -> Result<Arc<Url>, OriginResponse> {
    let host = String::from_utf8_lossy(&request.authority);
    let url = format!("{}://{host}{MERCURE_PATH}", request.scheme.as_str());
    let parsed = Url::parse(&url).map(Arc::new);
    parsed.map_err(|_| answer::problem(400, "the host cannot be part of a url"))
}

fn not_a_selector(name: &str, value: &str, why: NoSelector) -> OriginResponse {
    let shown: String = value.chars().take(100).collect();
    answer::problem(400, format!("{name}={shown}: {why}"))
}

/// Builds a response that demands a token (RFC 6750 §3).
fn challenge(status: u16, why: impl std::fmt::Display, error: &str) -> OriginResponse {
    let mut answer = answer::problem(status, why);
    answer
        .fields
        .push("WWW-Authenticate", format!("Bearer{error}"));
    answer
}

/// Returns a random UUID (RFC 9562 §5.4).
fn new_id() -> String {
    let (high, low) = (random::number(), random::number());
    let version = high & !0xF000 | 0x4000;
    let variant = low & !(0b11 << 62) | 0b10 << 62;
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        version >> 32,
        version >> 16 & 0xFFFF,
        version & 0xFFFF,
        variant >> 48,
        variant & 0xFFFF_FFFF_FFFF,
    )
}

/// The hub as an origin.
pub struct Mercure(pub Arc<Hub>);

impl Mercure {
    async fn answer(&self, mut request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let allowed = self.0.settings();
        let mut answer = self.answer_here(&mut request).await?;
        // CORS: the response fields that pages of other origins may read.
        let (sites, fields) = (&allowed.allow_origins, request.fields.fields());
        let granted = sites::granted(sites, fields, WithCookies::Named);
        if granted.fields().contains("access-control-allow-origin") {
            answer
                .fields
                .push("Access-Control-Expose-Headers", LAST_EVENT_ID.join(", "));
        }
        answer.fields.extend_if(granted.fields(), |_, _| true);
        Ok(answer)
    }

    async fn answer_here(
        &self,
        request: &mut OriginRequest,
    ) -> Result<OriginResponse, OriginError> {
        let Self(hub) = self;
        let is_about_subscriptions = subscriptions::are_meant(&request.target);
        let allowed = if is_about_subscriptions {
            subscriptions::ALLOWED
        } else {
            ALLOWED
        };
        match request.method {
            Method::GET | Method::HEAD if is_about_subscriptions => {
                Ok(hub.tell(request).unwrap_or_else(|refused| refused))
            }
            Method::GET | Method::HEAD => Ok(hub.subscribe(request).unwrap_or_else(|refused| {
                hub.counters.turned_away.add_one();
                refused
            })),
            Method::POST if !is_about_subscriptions => match hub.publish(request).await {
                Ok(answer) => Ok(answer),
                Err(NotPublished::Refused(refused)) => {
                    hub.counters.refused.add_one();
                    Ok(*refused)
                }
                Err(NotPublished::Broken(error)) => Err(OriginError::RequestBody(error)),
            },
            Method::OPTIONS => {
                let sites = &hub.settings().allow_origins;
                let preflight = sites::preflight(sites, request.fields.fields());
                Ok(preflight.unwrap_or_else(|| {
                    let mut answer = answer::bare(204);
                    answer.fields.push("Allow", allowed);
                    answer
                }))
            }
            _ => {
                let mut answer = answer::problem(405, format!("there is {allowed} here"));
                answer.fields.push("Allow", allowed);
                Ok(answer)
            }
        }
    }
}

impl Origin for Mercure {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(self.answer(request))
    }
}
