//! A hub of the Mercure protocol: publishers send updates as forms, and subscribers receive those of their
//! topics.
//!
//! The history is one log, limited in bytes, which is also the queue of all subscribers: a subscriber is its
//! selectors, its permissions and the number of the last update delivered to it. A subscriber that falls
//! behind the history is disconnected, and reconnects with the id of its last event.
//!
//! If enabled, the hub also reports presence: authorized subscribers receive an update whenever another
//! subscriber joins or leaves, and may query the list.

mod history;
mod id;
mod local_presence;
mod presence;
mod presence_api;
mod presence_list;
mod presence_record;
mod selector;
mod shared;
mod subscriber;
#[cfg(test)]
mod tests;
mod token;
mod update;
mod update_journal;
mod update_log;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_store::TierError;
use parking_lot::{Mutex, RwLock};
use tokio::task::spawn_blocking;
use url::Url;

use self::history::History;
use self::id::new_id;
use self::presence::{PresenceEntry, SelectorSyntax};
pub(crate) use self::selector::SelectorCache;
use self::selector::{Selector, SelectorError};
use self::shared::SharedHub;
use self::subscriber::Subscriber;
use self::token::{HubGrant, TokenVerifier};
pub(crate) use self::update::Update;
use self::update_journal::{PublishError, UpdateJournal};
use crate::access::cors::{self, AllowedOrigin, CookieUse};
use crate::access::request_token::RequestToken;
use crate::access::token_key::TokenKey;
use crate::answer;
use crate::changes::journal::{JournalError, SyncPolicy};
use crate::changes::json::essence;
use crate::fleet::state::FleetStats;
use crate::fleet::thread::FleetError;
use crate::form::pairs;
use crate::last_event_id;
use crate::paths::MERCURE_PATH;
use crate::publishing::upload::{UploadBudget, UploadError, UploadReservation};
use crate::settings::FleetSettings;
use crate::stats::Counter;
use crate::subscribing::stream::EventStream;
use crate::wait_list::Wakeups;

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
    pub publishers: TokenKey,
    /// Key that verifies subscribers' tokens.
    pub subscribers: TokenKey,
    /// Required audience of tokens (`aud`); `None`: any.
    pub audience: Option<String>,
    /// True if subscribers without a token receive public updates.
    pub anonymous: bool,
    /// True if presence is reported to authorized subscribers.
    pub subscriptions: bool,
    /// Other origins whose pages may subscribe; those listed by name may publish too.
    pub allow_origins: Vec<AllowedOrigin>,
    /// Memory limit of the history, in bytes.
    pub history: u64,
    /// Size limit of a publication, in bytes.
    pub max_update: u64,
    /// Limit of concurrent subscribers.
    pub max_subscribers: usize,
}

/// The hub.
pub struct Hub {
    history: Arc<Mutex<History>>,
    selectors: SelectorCache,
    settings: RwLock<Arc<MercureSettings>>,
    counters: HubCounters,
    uploads: UploadBudget,
    /// The log on disk, if updates are persisted.
    update_journal: OnceLock<UpdateJournal>,
    /// The part shared with other nodes, if there are any.
    shared: OnceLock<SharedHub>,
}

/// Running counters of the hub.
#[derive(Debug, Default)]
struct HubCounters {
    refused: Counter,
    unwritten: Counter,
    subscribed: Counter,
    turned_away: Counter,
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
    /// Updates published, on all nodes that share the hub.
    pub updates: u64,
    /// Publications rejected.
    pub refused: u64,
    /// Publications that could not be written to the log or to Redis.
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
            history: Arc::new(Mutex::new(History::new(settings.history))),
            selectors: SelectorCache::default(),
            settings: RwLock::new(Arc::new(settings)),
            counters: HubCounters::default(),
            uploads: UploadBudget::default(),
            update_journal: OnceLock::new(),
            shared: OnceLock::new(),
        }
    }

    /// Replaces the settings. Existing subscriptions stay.
    pub fn renew(&self, settings: MercureSettings) {
        self.history.lock().resize(settings.history);
        *self.settings.write() = Arc::new(settings);
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> MercureStats {
        let (history, counters) = (self.history.lock(), &self.counters);
        let (published, presence) = (&history.published, &history.presence);
        let settings = self.settings();
        let presence_capacity = if settings.subscriptions {
            presence.capacity()
        } else {
            0
        };
        MercureStats {
            history: (published.len() + presence.len()) as u64,
            bytes: published.bytes() + presence.bytes(),
            capacity: settings.history + presence_capacity,
            subscribers: history.subscribers as u64,
            topics: published.subscribed_topics() as u64,
            updates: history.updates,
            refused: counters.refused.get(),
            unwritten: counters.unwritten.get(),
            subscribed: counters.subscribed.get(),
            turned_away: counters.turned_away.get(),
            events: history.events,
            cut_off: history.cut_off,
        }
    }

    /// Loads the history from a directory, and persists further updates there. To be called once, before the
    /// hub serves requests.
    pub fn persist_in(&self, directory: &Path, sync: SyncPolicy) -> Result<(), JournalError> {
        let (update_journal, updates) = UpdateJournal::open(directory, sync)?;
        let mut history = self.history.lock();
        for update in updates {
            // There are no subscribers yet.
            drop(history.record(update));
        }
        drop(history);
        let is_first = self.update_journal.set(update_journal).is_ok();
        debug_assert!(is_first, "a hub keeps what is published in one place");
        Ok(())
    }

    /// Shares the hub with other nodes. To be called once, before the hub serves requests.
    pub fn share(&self, settings: FleetSettings) -> Result<(), FleetError> {
        let shared = SharedHub::start(settings, &self.history)?;
        let is_first = self.shared.set(shared).is_ok();
        debug_assert!(is_first, "a hub is shared by one group of nodes");
        Ok(())
    }

    /// Uses the users and passwords of these URLs of Redis for connections from now on, if the hub is shared.
    ///
    /// # Errors
    ///
    /// [`TierError`] if the URLs are those of other servers, or the server rejects the password.
    pub async fn change_login(&self, urls: &[String]) -> Result<(), TierError> {
        match self.shared.get() {
            Some(shared) => shared.change_login(urls).await,
            None => Ok(()),
        }
    }

    /// Returns the statistics of this node, if the hub is shared.
    pub fn fleet(&self) -> Option<FleetStats> {
        self.shared.get().map(SharedHub::stats)
    }

    /// Hands the log over to another process. After it returns, nothing is published.
    pub async fn hand_over(self: &Arc<Self>) {
        self.with_journal(UpdateJournal::hand_over).await;
    }

    /// Takes the log back after a failed handover.
    pub async fn take_back(self: &Arc<Self>) {
        self.with_journal(UpdateJournal::take_back).await;
    }

    /// Runs something that blocks with the log, if updates are persisted.
    async fn with_journal(self: &Arc<Self>, run: impl FnOnce(&UpdateJournal) + Send + 'static) {
        let hub = Arc::clone(self);
        let _ = spawn_blocking(move || hub.update_journal.get().map(run)).await;
    }

    fn settings(&self) -> Arc<MercureSettings> {
        Arc::clone(&self.settings.read())
    }

    /// Verifies a request's token and returns its permissions; `None` without a token.
    fn grant(
        &self,
        token: Option<&RequestToken>,
        key: &TokenKey,
        (settings, hub): (&MercureSettings, &Arc<Url>),
    ) -> Result<Option<HubGrant>, OriginResponse> {
        let Some(token) = token else {
            return Ok(None);
        };
        let checked = TokenVerifier {
            key,
            audience: settings.audience.as_deref(),
            selectors: &self.selectors,
            hub,
        };
        let grant = checked.grant(&token.token);
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
        let query = self.read_query(request, &hub)?;
        let token = RequestToken::from_request(request.fields.fields(), &request.target, COOKIES);
        let grant = self.grant(token.as_ref(), &settings.subscribers, (&settings, &hub))?;
        let grant = match grant {
            Some(grant) => grant,
            None if settings.anonymous => HubGrant::default(),
            None => {
                return Err(challenge(
                    401,
                    "subscribing requires a token, see docs/mercure.md",
                    "",
                ));
            }
        };
        // HEAD does not subscribe.
        let has_presence = settings.subscriptions && request.method == Method::GET;
        let entry =
            has_presence.then(|| PresenceEntry::new(new_id(), &query.selectors, &grant.payloads));
        let entry = entry.transpose();
        let entry = entry.map_err(|why| challenge(401, why, " error=\"invalid_token\""))?;
        let may_read = (grant.subscribe.into(), grant.ends);
        let last_event_id = query.last_event_id.as_deref();
        let selectors: Vec<_> = query.selectors.into_iter().map(|(_, it)| it).collect();
        let subscriber = Subscriber::new(
            &self.history,
            settings.max_subscribers,
            &selectors,
            last_event_id,
            may_read,
        );
        let (mut subscriber, after) =
            subscriber.map_err(|why| answer::later(answer::problem(503, why)))?;
        self.counters.subscribed.add_one();
        if let Some(entry) = entry {
            subscriber.announce(entry);
        }
        let mut answer = EventStream::new(subscriber, false).answer();
        if let Some(after) = after {
            for name in LAST_EVENT_ID {
                answer.fields.push(name, &*after);
            }
        }
        Ok(answer)
    }

    fn read_query(
        &self,
        request: &OriginRequest,
        hub: &Arc<Url>,
    ) -> Result<SubscribeQuery, OriginResponse> {
        let mut params = SubscribeQuery::default();
        let (_, query) = split_query(&request.target);
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair.map_err(|_| answer::problem(400, "the query is not UTF-8"))?;
            let (syntax, selector) = match &*name {
                "topic" => (SelectorSyntax::Topic, self.selectors.topic(&value)),
                "match" | "match_exact" => (SelectorSyntax::Exact, Selector::exact(&value)),
                "match_urlpattern" => {
                    (SelectorSyntax::Pattern, self.selectors.pattern(&value, hub))
                }
                name if name == "Last-Event-ID" || last_event_id::is_parameter(name) => {
                    params.last_event_id = Some(value);
                    continue;
                }
                name if name.to_ascii_lowercase().starts_with("match") => {
                    let why = format!(
                        "{name}: unknown matcher; use match, match_exact or match_urlpattern"
                    );
                    return Err(answer::problem(400, why));
                }
                _ => continue,
            };
            let selector = selector.map_err(|why| not_a_selector(&name, &value, why))?;
            if params.selectors.len() == MAX_SELECTORS {
                let why = format!("a subscription may have at most {MAX_SELECTORS} topics");
                return Err(answer::problem(400, why));
            }
            params.selectors.push((syntax, selector));
        }
        if params.selectors.is_empty() {
            let why = format!("no topic to subscribe to: use {MERCURE_PATH}?topic=…");
            return Err(answer::problem(400, why));
        }
        // The id of a reconnecting browser is newer than that of the URL.
        if let Some(id) = last_event_id::from_fields(request.fields.fields()) {
            params.last_event_id = Some(id);
        }
        Ok(params)
    }

    /// Publishes an update and wakes its subscribers.
    fn deliver(&self, update: Update) {
        let mut history = self.history.lock();
        history.updates += 1;
        let wakeups = history.record(update);
        drop(history);
        wakeups.into_iter().for_each(Wakeups::wake);
    }

    /// Writes an update to the log, then publishes it.
    async fn persist(
        self: &Arc<Self>,
        update_journal: &UpdateJournal,
        update: Update,
        reservation: UploadReservation,
    ) -> Result<(), PublishError> {
        let (result, needs_writer) = update_journal.add(update, reservation)?;
        if needs_writer {
            let hub = Arc::clone(self);
            spawn_blocking(move || hub.write_all());
        }
        result.await.unwrap_or(Err(PublishError::Busy))
    }

    /// Writes queued updates until there are none.
    fn write_all(&self) {
        if let Some(update_journal) = self.update_journal.get() {
            let deliver = |update| self.deliver(update);
            update_journal.write_all(&self.history, &self.counters.unwritten, deliver);
        }
    }

    async fn publish(
        self: &Arc<Self>,
        request: &mut OriginRequest,
    ) -> Result<OriginResponse, UploadError> {
        let settings = self.settings();
        let hub = hub_url(request)?;
        let token = RequestToken::from_request(request.fields.fields(), &request.target, COOKIES);
        let grant = self.grant(token.as_ref(), &settings.publishers, (&settings, &hub))?;
        let Some(grant) = grant else {
            return Err(
                challenge(401, "publishing requires a token, see docs/mercure.md", "").into(),
            );
        };
        if token.is_some_and(|it| it.is_ambient)
            && !is_trusted_page(&settings.allow_origins, request)
        {
            let why = "publishing with a cookie requires Origin or Referer of this site or of one in push_allow_origins";
            return Err(answer::problem(403, why).into());
        }
        let kind = request
            .fields
            .fields()
            .get("content-type")
            .unwrap_or_default();
        let kind = std::str::from_utf8(kind).unwrap_or_default();
        if essence(kind) != FORM {
            return Err(answer::problem(
                415,
                format!("the Content-Type of a publication must be {FORM}"),
            )
            .into());
        }
        let (form, reservation) = self
            .uploads
            .receive(request, "a publication", settings.max_update)
            .await?;
        let update = Update::read(&form, &hub, new_id).map_err(|why| {
            let status = if why.is_too_large() { 413 } else { 400 };
            answer::problem(status, why)
        })?;
        let may = |topic: &Arc<str>| grant.publish.iter().any(|it| it.matches(topic));
        if !update.topics.iter().all(may) {
            let why = "the token does not permit publishing to all of these topics";
            return Err(challenge(403, why, " error=\"insufficient_scope\"").into());
        }
        if update.size() > settings.history {
            let why = "the update is larger than the history (mercure_history)";
            return Err(answer::problem(413, why).into());
        }
        let id = Arc::clone(&update.id);
        if let Some(update_journal) = self.update_journal.get() {
            let published = self.persist(update_journal, update, reservation).await;
            published.map_err(|why| answer::later(answer::problem(503, why)))?;
        } else if let Some(shared) = self.shared.get() {
            let published = shared.publish(&update, settings.history).await;
            published.map_err(|why| {
                self.counters.unwritten.add_one();
                why.answer()
            })?;
        } else {
            self.deliver(update);
        }
        let id = Bytes::copy_from_slice(id.as_bytes());
        let mut answer = answer::whole(200, "text/plain; charset=utf-8", id);
        answer.fields.push("Cache-Control", "no-store");
        Ok(answer)
    }
}

/// Returns whether a cookie was sent by a page of this host or of a listed origin.
fn is_trusted_page(sites: &[AllowedOrigin], request: &OriginRequest) -> bool {
    cors::allows_cookie_write(sites, request.fields.fields(), &request.authority)
}

/// The parsed query of a subscription.
#[derive(Default)]
struct SubscribeQuery {
    selectors: Vec<(SelectorSyntax, Selector)>,
    last_event_id: Option<String>,
}

/// Returns the URL of the hub as the client addresses it.
fn hub_url(request: &OriginRequest) -> Result<Arc<Url>, OriginResponse> {
    let host = String::from_utf8_lossy(&request.authority);
    let url = format!("{}://{host}{MERCURE_PATH}", request.scheme.as_str());
    let parsed = Url::parse(&url).map(Arc::new);
    parsed.map_err(|_| answer::problem(400, "the host is not valid in a URL"))
}

fn not_a_selector(name: &str, value: &str, why: SelectorError) -> OriginResponse {
    let excerpt: String = value.chars().take(100).collect();
    answer::problem(400, format!("{name}={excerpt}: {why}"))
}

/// Builds a response that demands a token (RFC 6750 §3).
fn challenge(status: u16, why: impl std::fmt::Display, error: &str) -> OriginResponse {
    let mut answer = answer::problem(status, why);
    answer
        .fields
        .push("WWW-Authenticate", format!("Bearer{error}"));
    answer
}

/// The hub as an origin.
pub struct MercureOrigin(pub Arc<Hub>);

impl MercureOrigin {
    async fn answer(&self, mut request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let allowed = self.0.settings();
        let mut answer = self.answer_here(&mut request).await?;
        // CORS: the response fields that pages of other origins may read.
        let (sites, fields) = (&allowed.allow_origins, request.fields.fields());
        let granted = cors::response_fields(sites, fields, CookieUse::Listed);
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
        let is_about_subscriptions = presence_api::is_presence_path(&request.target);
        let allowed = if is_about_subscriptions {
            presence_api::ALLOWED
        } else {
            ALLOWED
        };
        match request.method {
            Method::GET | Method::HEAD if is_about_subscriptions => {
                Ok(hub.presence(request).unwrap_or_else(|refused| refused))
            }
            Method::GET | Method::HEAD => Ok(hub.subscribe(request).unwrap_or_else(|refused| {
                hub.counters.turned_away.add_one();
                refused
            })),
            Method::POST if !is_about_subscriptions => match hub.publish(request).await {
                Ok(answer) => Ok(answer),
                Err(UploadError::Refused(refused)) => {
                    hub.counters.refused.add_one();
                    Ok(*refused)
                }
                Err(UploadError::Broken(error)) => Err(OriginError::RequestBody(error)),
            },
            Method::OPTIONS => {
                let sites = &hub.settings().allow_origins;
                let preflight = cors::preflight(sites, request.fields.fields());
                Ok(preflight.unwrap_or_else(|| {
                    let mut answer = answer::bare(204);
                    answer.fields.push("Allow", allowed);
                    answer
                }))
            }
            _ => {
                let mut answer =
                    answer::problem(405, format!("the method is not allowed; use {allowed}"));
                answer.fields.push("Allow", allowed);
                Ok(answer)
            }
        }
    }
}

impl Origin for MercureOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(self.answer(request))
    }
}
