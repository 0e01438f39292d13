//! The origin that serves documents to the cache in front of it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_policy::{Fields, is_event_stream};
use microcache_store::Hit;

use crate::access::readers::{PushKeys, Reader};
use crate::access::sites;
use crate::answer;
use crate::changes::change::Content;
use crate::changes::journal::{Journal, LogOf};
use crate::changes::json::{check, essence};
use crate::documents::Documents;
use crate::documents::books::Books;
use crate::documents::client::Client;
use crate::documents::no_url::NoUrl;
use crate::fleet::FleetStats;
use crate::keeper::{KeepError, Keeper};
use crate::name::{Name, Pattern, name};
use crate::publishing::batch;
use crate::publishing::coming::{Arrivals, NotPublished};
use crate::publishing::patch::Patch;
use crate::publishing::wish::{Condition, Deed, Wish};
use crate::settings::PushSettings;
use crate::socket::{Language, Protocol, handshake, is_asked_for};
use crate::stats::PushStats;
use crate::subscribing::stream::EventStream;
use crate::subscribing::subscription::{Asked, DocumentEvents, NoSubscription, Subscription};

/// The last path segment of a batch.
const BATCH: &[u8] = b"batch";

/// The push cache.
pub struct Push {
    documents: Arc<Documents>,
    keeper: Keeper,
    arrivals: Arrivals,
}

impl Push {
    /// Loads the stored documents and starts the backend. Fails if the log or Redis cannot be used.
    pub fn start(settings: PushSettings, keys: PushKeys) -> Result<Self, KeepError> {
        let mut books = Books::new(settings.history, settings.memory);
        books.is_shared = settings.fleet.is_some();
        let mut journal = None;
        if let Some(directory) = settings.directory.as_ref().filter(|_| !books.is_shared) {
            let (mut opened, loaded) = Journal::open(LogOf::Documents, directory, settings.sync)?;
            if loaded.is_damaged {
                tracing::error!(
                    target: "microcache",
                    "the log of documents in {} is damaged: what comes after the damage is lost, and lies in documents.damaged",
                    directory.display()
                );
            }
            books.load(loaded);
            opened.begin(books.begin_generation());
            journal = Some(opened);
        }
        let documents = Documents::new(books, settings, keys);
        let keeper = Keeper::start(&documents, journal)?;
        Ok(Self {
            documents,
            keeper,
            arrivals: Arrivals::default(),
        })
    }

    /// Returns whether a request with these fields may read this path: it is public, or the credentials
    /// suffice.
    pub fn is_open_to(&self, path: &[u8], request: Fields<'_>) -> bool {
        let path = std::str::from_utf8(path);
        path.is_ok_and(|path| self.documents.is_open_to(path, request))
    }

    /// Replaces the tokens and keys. Existing subscriptions stay.
    pub fn renew_keys(&self, keys: PushKeys) {
        *self.documents.keys.write() = keys;
    }

    /// Hands the documents over to another process. After it returns, this process makes no more changes.
    pub async fn give_up(&self) {
        self.keeper.give_up().await;
    }

    /// Takes the documents back after a failed handover.
    pub async fn take_back(&self) {
        self.keeper.take_back().await;
    }

    /// Closes all WebSockets with 1001 (going away), so that clients reconnect to another process.
    pub fn end_sockets(&self) {
        self.documents.sockets.end();
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> PushStats {
        let (books, counters) = (self.documents.books.lock(), &self.documents.counters);
        PushStats {
            documents: books.len() as u64,
            bytes: books.size(),
            capacity: self.documents.settings.memory,
            subscribers: books.subscribers as u64,
            sockets: self.documents.sockets.open(),
            topics: books.topics.len() as u64,
            changes: counters.changes.get(),
            same: counters.same.get(),
            expired: counters.expired.get(),
            refused: counters.refused.get(),
            subscribed: counters.subscribed.get(),
            turned_away: counters.turned_away.get(),
            events: counters.events.get(),
            deltas: counters.deltas.get(),
            resets: counters.resets.get(),
            gaps: counters.gaps.get(),
            syncs: counters.syncs.get(),
            unwritten: counters.unwritten.get(),
        }
    }

    /// Returns the statistics of this node, if documents are shared through Redis.
    pub fn fleet(&self) -> Option<FleetStats> {
        self.keeper.fleet()
    }

    pub(crate) const fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    async fn answer(&self, request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let target = request.target.clone();
        let (path, _) = split_query(&target);
        let sites = &self.documents.settings.allow_origins;
        match request.method {
            Method::GET if is_asked_for(&request) => {
                Ok(self.open(&request, path).unwrap_or_else(|refused| refused))
            }
            Method::GET | Method::HEAD => Ok(match name(path) {
                Ok(name) => self.read(&request, &name),
                Err(_) => answer::problem(404, "there is no such document"),
            }),
            Method::PUT | Method::PATCH | Method::DELETE => self.publish(request, path).await,
            Method::POST if path.ends_with(b"/batch") => self.publish(request, path).await,
            Method::OPTIONS => Ok(
                sites::preflight(sites, request.fields.fields()).unwrap_or_else(answer::options)
            ),
            _ => Ok(answer::not_allowed()),
        }
    }

    fn read(&self, request: &OriginRequest, name: &Name) -> OriginResponse {
        let fields = request.fields.fields();
        let shown = self.documents.shown(request, b"");
        let pattern = Pattern::Exact(Arc::clone(name));
        if let Err(refused) = self.documents.may_ask(&shown, &pattern) {
            return refused.answer();
        }
        let accepts = fields.get("accept").unwrap_or_default();
        if request.method == Method::GET && accepts.split(|&b| b == b',').any(is_event_stream) {
            return self.subscribe(fields, pattern, shown.reader());
        }
        // The engine asks here only for requests that bypass it: `no-store`, content, other protocols.
        match self.documents.pages.get(name.as_bytes()) {
            Some(page) => answer::page(page),
            None if !self.documents.are_there() => NoSubscription::NoDocuments.answer(),
            None => answer::problem(404, "there is no such document"),
        }
    }

    fn subscribe(&self, fields: Fields<'_>, pattern: Pattern, reader: Reader) -> OriginResponse {
        let asked = Asked {
            documents: vec![pattern],
            seen: last_event_id(fields),
            reader,
            client: Client::of(fields),
            ..Asked::default()
        };
        match Subscription::new(&self.documents, asked.held_against(&self.documents)) {
            Ok(subscription) => EventStream::new(DocumentEvents(subscription), false).answer(),
            Err(why) => why.answer(),
        }
    }

    /// Opens a WebSocket at the path of a document, or at a folder of documents.
    fn open(&self, request: &OriginRequest, path: &[u8]) -> Result<OriginResponse, OriginResponse> {
        let no_document = || answer::problem(404, "there is no such document");
        let spoken = [Protocol::Microcache, Protocol::Piper];
        let handshake = handshake(&self.documents, request, &spoken)?;
        let path = std::str::from_utf8(path).map_err(|_| no_document())?;
        let pattern = match name(path.as_bytes()) {
            Ok(name) => Some(Pattern::Exact(name)),
            Err(_) if path.ends_with('/') => None,
            Err(_) => return Err(no_document()),
        };
        let shown = self.documents.shown(request, b"");
        if let Some(pattern) = &pattern {
            let may = self.documents.may_ask(&shown, pattern);
            may.map_err(NoUrl::answer)?;
        }
        let (wanted, language) = if handshake.protocol == Some(Protocol::Piper) {
            (None, Language::piper_at(path))
        } else {
            let ours = Language::Ours {
                pages: None,
                wants_deltas: false,
            };
            (pattern, ours)
        };
        let fields = request.fields.fields();
        let asked = Asked {
            documents: wanted.into_iter().collect(),
            seen: last_event_id(fields),
            reader: shown.reader(),
            client: Client::of(fields),
            ..Asked::default()
        };
        let asked = asked.held_against(&self.documents);
        let subscription = Subscription::new(&self.documents, asked);
        let subscription = subscription.map_err(NoSubscription::answer)?;
        Ok(handshake.open(subscription, language))
    }

    async fn publish(
        &self,
        mut request: OriginRequest,
        path: &[u8],
    ) -> Result<OriginResponse, OriginError> {
        let fields = request.fields.fields();
        let said = fields.get("authorization").unwrap_or_default();
        let token = self.documents.keys.read().publishers.clone();
        let is_allowed = token.map(|token| token.is_in(said));
        if is_allowed != Some(true) {
            return Ok(answer::unauthorised(is_allowed.is_some()));
        }
        if let Some(refused) = not_understood(&request) {
            return Ok(refused);
        }
        let prefix_of_batch = path
            .strip_suffix(BATCH)
            .filter(|_| request.method == Method::POST);
        let largest = self.documents.settings.max_document;
        let arrivals = &self.arrivals;
        let (body, coming) = match arrivals.receive(&mut request, "a document", largest).await {
            Ok(received) => received,
            Err(NotPublished::Refused(refused)) => return Ok(*refused),
            Err(NotPublished::Broken(error)) => return Err(OriginError::RequestBody(error)),
        };
        // The receive buffer has spare capacity, which must not be stored with the document.
        let body = Bytes::copy_from_slice(&body);
        let fields = request.fields.fields();
        if let Some(prefix) = prefix_of_batch {
            let wishes = match batch::read(&body, prefix) {
                Ok(wishes) => wishes,
                Err(why) => return Ok(answer::problem(400, why)),
            };
            return Ok(match self.keeper.ask(wishes, coming).await {
                Ok(done) => batch::answer(&done),
                Err(refused) => refused.answer(),
            });
        }
        let wish = match name(path) {
            Ok(name) => wish(&request.method, fields, name, body),
            Err(why) => Err(answer::problem(400, why)),
        };
        let wish = match wish {
            Ok(wish) => wish,
            Err(refused) => return Ok(refused),
        };
        Ok(match self.keeper.ask(vec![wish], coming).await {
            Ok(done) => done
                .first()
                .map_or_else(|| answer::bare(204), |done| done.answer()),
            Err(refused) => refused.answer(),
        })
    }
}

fn last_event_id(fields: Fields<'_>) -> Option<String> {
    let said = fields.get("last-event-id").map(String::from_utf8_lossy);
    said.map(std::borrow::Cow::into_owned)
}

/// Rejects fields that would change the meaning of a write and are not supported.
fn not_understood(request: &OriginRequest) -> Option<OriginResponse> {
    let fields = request.fields.fields();
    if fields.contains("content-encoding") {
        return Some(answer::problem(
            415,
            "documents are put as they are, without Content-Encoding",
        ));
    }
    if fields.contains("content-range") {
        return Some(answer::problem(
            400,
            "a part of a document cannot be put (RFC 9110, section 14.5): patch it",
        ));
    }
    None
}

/// Builds the write request of a PUT, PATCH or DELETE.
fn wish(
    method: &Method,
    fields: Fields<'_>,
    name: Name,
    body: Bytes,
) -> Result<Wish, OriginResponse> {
    let media_type = match fields.get("content-type") {
        Some(said) => std::str::from_utf8(said)
            .ok()
            .filter(|it| it.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')))
            .ok_or_else(|| answer::problem(400, "Content-Type is not ASCII"))?,
        None => "application/octet-stream",
    };
    let deed = match *method {
        Method::PUT => {
            if is_event_stream(media_type.as_bytes()) {
                return Err(answer::problem(415, "a document is no event stream"));
            }
            check_json(media_type, &body)?;
            let content = Content {
                media_type: media_type.into(),
                body,
            };
            Deed::Put(content, lifetime(fields)?)
        }
        Method::PATCH => Deed::Patch(patch(media_type, body)?),
        _ => Deed::Delete,
    };
    Ok(Wish {
        name,
        deed,
        condition: Condition::of(fields),
    })
}

/// Checks that a document with a JSON media type is JSON.
fn check_json(media_type: &str, body: &[u8]) -> Result<(), OriginResponse> {
    check(media_type, body)
        .map_err(|error| answer::problem(400, format!("the document is not JSON: {error}")))
}

/// Parses `Push-TTL`, in seconds; the result is in milliseconds.
fn lifetime(fields: Fields<'_>) -> Result<Option<u64>, OriginResponse> {
    let Some(said) = fields.get("push-ttl") else {
        return Ok(None);
    };
    let seconds = std::str::from_utf8(said)
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Some(u64::from(seconds) * 1000)),
        _ => Err(answer::problem(
            400,
            "Push-TTL is a number of seconds from 1 on",
        )),
    }
}

fn patch(media_type: &str, body: Bytes) -> Result<Patch, OriginResponse> {
    let wrong = |error| answer::problem(400, format!("the patch cannot be read: {error}"));
    match essence(media_type) {
        "application/merge-patch+json" => Patch::merge(body).map_err(wrong),
        "application/json-patch+json" => Patch::operations(&body).map_err(wrong),
        _ => Err(answer::unknown_patch()),
    }
}

impl Origin for Push {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let sites = &self.documents.settings.allow_origins;
            let fields = request.fields.fields();
            let granted = sites::granted(sites, fields, self.documents.cookies());
            let mut answer = self.answer(request).await?;
            answer.fields.extend_if(granted.fields(), |_, _| true);
            Ok(answer)
        })
    }

    fn at_hand(&self, target: &[u8]) -> Option<Hit> {
        let (path, _) = split_query(target);
        self.documents.pages.get(path)
    }

    fn at_hand_for(&self, target: &[u8], request: Fields<'_>) -> Option<Hit> {
        let (path, _) = split_query(target);
        let page = self.documents.pages.get(path)?;
        if !self.documents.settings.private.is_empty() {
            let name = std::str::from_utf8(path).ok()?;
            // Other requests take the slow path, which challenges the client.
            self.documents.is_open_to(name, request).then_some(())?;
        }
        let sites = &self.documents.settings.allow_origins;
        Some(sites::grant(sites, request, self.documents.cookies(), page))
    }
}
