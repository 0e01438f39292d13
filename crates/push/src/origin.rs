//! The origin that serves documents to the cache in front of it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::key::split_query;
use microcache_policy::{Fields, Millis, is_event_stream};
use microcache_store::Hit;
use microcache_store::TierError;

use crate::access::cors;
use crate::access::read_grant::{PushKeys, ReadGrant};
use crate::answer;
use crate::backend::{Backend, BackendError};
use crate::changes::change::DocumentContent;
use crate::changes::journal::{ChangeJournal, LogKind};
use crate::changes::json::{check, essence};
use crate::documents::Documents;
use crate::documents::client_network::ClientNetwork;
use crate::documents::index::DocumentIndex;
use crate::documents::url_error::UrlError;
use crate::fleet::FleetStats;
use crate::last_event_id;
use crate::name::{DocumentName, Pattern, parse_name};
use crate::publishing::batch;
use crate::publishing::patch::Patch;
use crate::publishing::upload::{UploadBudget, UploadError};
use crate::publishing::write_request::{
    TTL_RANGE, WriteCondition, WriteOp, WriteRequest, ttl_in_millis,
};
use crate::settings::PushSettings;
use crate::socket::{Language, Subprotocol, handshake, is_websocket_request};
use crate::stats::PushStats;
use crate::subscribing::cursor::ResumePoint;
use crate::subscribing::stream::EventStream;
use crate::subscribing::subscription::{
    DocumentEvents, SubscribeError, SubscribeRequest, Subscription,
};

/// The last path segment of a batch.
const BATCH: &[u8] = b"batch";

/// The push cache.
pub struct Push {
    documents: Arc<Documents>,
    backend: Backend,
    uploads: UploadBudget,
}

impl Push {
    /// Loads the stored documents and starts the backend. Fails if the log or Redis cannot be used.
    pub fn start(settings: PushSettings, keys: PushKeys) -> Result<Self, BackendError> {
        let mut index = DocumentIndex::new(settings.history, settings.memory);
        index.is_shared = settings.fleet.is_some();
        let mut journal = None;
        if let Some(directory) = settings.directory.as_ref().filter(|_| !index.is_shared) {
            let (mut opened, loaded) =
                ChangeJournal::open(LogKind::Documents, directory, settings.sync)?;
            if loaded.is_damaged {
                tracing::error!(
                    target: "microcache",
                    "the log of documents in {} is damaged: later changes are lost; the damaged file was saved as documents.damaged",
                    directory.display()
                );
            }
            index.load(loaded);
            opened.begin(index.begin_generation());
            journal = Some(opened);
        }
        let documents = Documents::new(index, settings, keys);
        let backend = Backend::start(&documents, journal)?;
        Ok(Self {
            documents,
            backend,
            uploads: UploadBudget::default(),
        })
    }

    /// Returns whether a request with these fields may read this path: it is public, or the credentials
    /// suffice.
    pub fn is_readable_by(&self, path: &[u8], request: Fields<'_>) -> bool {
        let path = std::str::from_utf8(path);
        path.is_ok_and(|path| self.documents.is_readable_by(path, request))
    }

    /// Returns whether an authentication server has to be asked which documents a request may read: it may be about
    /// private ones, and has no valid token.
    pub fn needs_permission(&self, target: &[u8], request: Fields<'_>) -> bool {
        self.documents.needs_permission(target, request)
    }

    /// Replaces the tokens and keys. Existing subscriptions stay.
    pub fn renew_keys(&self, keys: PushKeys) {
        *self.documents.keys.write() = keys;
    }

    /// Uses the users and passwords of these URLs of Redis for connections from now on.
    ///
    /// # Errors
    ///
    /// [`TierError`] if the URLs are those of other servers, or the server rejects the password.
    pub async fn change_login(&self, urls: &[String]) -> Result<(), TierError> {
        self.backend.change_login(urls).await
    }

    /// Hands the documents over to another process. After it returns, this process makes no more changes.
    pub async fn hand_over(&self) {
        self.backend.hand_over().await;
    }

    /// Takes the documents back after a failed handover.
    pub async fn take_back(&self) {
        self.backend.take_back().await;
    }

    /// Closes all WebSocket connections with 1001 (going away), so that clients reconnect to another process.
    pub fn close_sockets(&self) {
        self.documents.sockets.close_all();
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> PushStats {
        let (index, counters) = (self.documents.index.lock(), &self.documents.counters);
        PushStats {
            documents: index.len() as u64,
            bytes: index.size(),
            capacity: self.documents.settings.memory,
            subscribers: index.subscribers as u64,
            sockets: self.documents.sockets.open(),
            topics: index.topics.len() as u64,
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
        self.backend.fleet_stats()
    }

    pub(crate) const fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    async fn answer(&self, request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let target = request.target.clone();
        let (path, _) = split_query(&target);
        let sites = &self.documents.settings.allow_origins;
        match request.method {
            Method::GET if is_websocket_request(&request) => {
                Ok(self.open(&request, path).unwrap_or_else(|refused| refused))
            }
            Method::GET | Method::HEAD => Ok(match parse_name(path) {
                Ok(name) => self.read(&request, &name),
                Err(_) => answer::problem(404, "there is no such document"),
            }),
            Method::PUT | Method::PATCH | Method::DELETE => self.publish(request, path).await,
            Method::POST if path.ends_with(b"/batch") => self.publish(request, path).await,
            Method::OPTIONS => {
                Ok(cors::preflight(sites, request.fields.fields()).unwrap_or_else(answer::options))
            }
            _ => Ok(answer::not_allowed()),
        }
    }

    fn read(&self, request: &OriginRequest, name: &DocumentName) -> OriginResponse {
        let fields = request.fields.fields();
        let credentials = self.documents.credentials(request, b"");
        let pattern = Pattern::Exact(Arc::clone(name));
        if let Err(refused) = self.documents.authorize(&credentials, &pattern) {
            return refused.answer();
        }
        let accepts = fields.get("accept").unwrap_or_default();
        if request.method == Method::GET && accepts.split(|&b| b == b',').any(is_event_stream) {
            return self.subscribe(fields, pattern, credentials.grant());
        }
        // The engine forwards only requests that bypass it to this origin: `no-store`, content, other protocols.
        match self.documents.responses.get(name.as_bytes()) {
            Some(page) => answer::page(page),
            None if !self.documents.are_loaded() => SubscribeError::NoDocuments.answer(),
            None => answer::problem(404, "there is no such document"),
        }
    }

    fn subscribe(&self, fields: Fields<'_>, pattern: Pattern, grant: ReadGrant) -> OriginResponse {
        let subscribe_request = SubscribeRequest {
            documents: vec![pattern],
            last_event_id: resume_point(fields),
            grant,
            client: ClientNetwork::from_request(fields),
            ..SubscribeRequest::default()
        };
        match Subscription::new(
            &self.documents,
            subscribe_request.without_lost_versions(&self.documents),
        ) {
            Ok(subscription) => EventStream::new(DocumentEvents(subscription), false).answer(),
            Err(why) => why.answer(),
        }
    }

    /// Opens a WebSocket at the path of a document, or at a folder of documents.
    fn open(&self, request: &OriginRequest, path: &[u8]) -> Result<OriginResponse, OriginResponse> {
        let no_document = || answer::problem(404, "there is no such document");
        let spoken = [Subprotocol::Microcache, Subprotocol::Piper];
        let handshake = handshake(&self.documents, request, &spoken)?;
        let path = std::str::from_utf8(path).map_err(|_| no_document())?;
        let pattern = match parse_name(path.as_bytes()) {
            Ok(name) => Some(Pattern::Exact(name)),
            Err(_) if path.ends_with('/') => None,
            Err(_) => return Err(no_document()),
        };
        let credentials = self.documents.credentials(request, b"");
        if let Some(pattern) = &pattern {
            let may = self.documents.authorize(&credentials, pattern);
            may.map_err(UrlError::answer)?;
        }
        let (wanted, language) = if handshake.protocol == Some(Subprotocol::Piper) {
            (None, Language::piper_at(path))
        } else {
            let ours = Language::Native {
                pages: None,
                wants_deltas: false,
            };
            (pattern, ours)
        };
        let fields = request.fields.fields();
        let subscribe_request = SubscribeRequest {
            documents: wanted.into_iter().collect(),
            last_event_id: resume_point(fields),
            grant: credentials.grant(),
            client: ClientNetwork::from_request(fields),
            ..SubscribeRequest::default()
        };
        let subscribe_request = subscribe_request.without_lost_versions(&self.documents);
        let subscription = Subscription::new(&self.documents, subscribe_request);
        let subscription = subscription.map_err(SubscribeError::answer)?;
        Ok(handshake.open(subscription, language))
    }

    async fn publish(
        &self,
        mut request: OriginRequest,
        path: &[u8],
    ) -> Result<OriginResponse, OriginError> {
        let fields = request.fields.fields();
        let value = fields.get("authorization").unwrap_or_default();
        let token = self.documents.keys.read().publisher_secret.clone();
        let is_allowed = token.map(|token| token.matches_authorization(value));
        if is_allowed != Some(true) {
            return Ok(answer::unauthorised(is_allowed.is_some()));
        }
        if let Some(refused) = unsupported_fields(&request) {
            return Ok(refused);
        }
        let prefix_of_batch = path
            .strip_suffix(BATCH)
            .filter(|_| request.method == Method::POST);
        let largest = self.documents.settings.max_document;
        let uploads = &self.uploads;
        let (body, reservation) = match uploads.receive(&mut request, "a document", largest).await {
            Ok(received) => received,
            Err(UploadError::Refused(refused)) => return Ok(*refused),
            Err(UploadError::Broken(error)) => return Err(OriginError::RequestBody(error)),
        };
        // The receive buffer has spare capacity, which must not be stored with the document.
        let body = Bytes::copy_from_slice(&body);
        let fields = request.fields.fields();
        if let Some(prefix) = prefix_of_batch {
            let writes = match batch::read(&body, prefix) {
                Ok(writes) => writes,
                Err(why) => return Ok(answer::problem(400, why)),
            };
            return Ok(match self.backend.submit(writes, reservation).await {
                Ok(done) => batch::answer(&done),
                Err(refused) => refused.answer(),
            });
        }
        let write = match parse_name(path) {
            Ok(name) => write_request(&request.method, fields, name, body),
            Err(why) => Err(answer::problem(400, why)),
        };
        let write = match write {
            Ok(write) => write,
            Err(refused) => return Ok(refused),
        };
        Ok(match self.backend.submit(vec![write], reservation).await {
            Ok(done) => done
                .first()
                .map_or_else(|| answer::bare(204), |done| done.answer()),
            Err(refused) => refused.answer(),
        })
    }
}

/// Returns the position from which a reconnecting client resumes.
fn resume_point(fields: Fields<'_>) -> Option<ResumePoint> {
    last_event_id::from_fields(fields).map(|id| ResumePoint::parse(&id))
}

/// Rejects fields that would change the meaning of a write and are not supported.
fn unsupported_fields(request: &OriginRequest) -> Option<OriginResponse> {
    let fields = request.fields.fields();
    if fields.contains("content-encoding") {
        return Some(answer::problem(
            415,
            "documents must be sent without Content-Encoding",
        ));
    }
    if fields.contains("content-range") {
        return Some(answer::problem(
            400,
            "partial PUT is not supported (RFC 9110, section 14.5): use PATCH",
        ));
    }
    None
}

/// Builds the write request of a PUT, PATCH or DELETE.
fn write_request(
    method: &Method,
    fields: Fields<'_>,
    name: DocumentName,
    body: Bytes,
) -> Result<WriteRequest, OriginResponse> {
    let media_type = match fields.get("content-type") {
        Some(value) => std::str::from_utf8(value)
            .ok()
            .filter(|it| it.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')))
            .ok_or_else(|| answer::problem(400, "Content-Type is not ASCII"))?,
        None => "application/octet-stream",
    };
    let op = match *method {
        Method::PUT => {
            if is_event_stream(media_type.as_bytes()) {
                return Err(answer::problem(415, "a document cannot be an event stream"));
            }
            check_json(media_type, &body)?;
            let content = DocumentContent {
                media_type: media_type.into(),
                body,
            };
            WriteOp::Put(content, lifetime(fields)?)
        }
        Method::PATCH => WriteOp::Patch(patch(media_type, body)?),
        _ => WriteOp::Delete,
    };
    Ok(WriteRequest {
        name,
        op,
        condition: WriteCondition::from_fields(fields),
    })
}

/// Checks that a document with a JSON media type is JSON.
fn check_json(media_type: &str, body: &[u8]) -> Result<(), OriginResponse> {
    check(media_type, body)
        .map_err(|error| answer::problem(400, format!("the document is not valid JSON: {error}")))
}

/// Parses `Push-TTL`.
fn lifetime(fields: Fields<'_>) -> Result<Option<Millis>, OriginResponse> {
    let Some(value) = fields.get("push-ttl") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(value).ok();
    match text
        .and_then(|text| text.parse().ok())
        .and_then(ttl_in_millis)
    {
        Some(ttl) => Ok(Some(ttl)),
        None => Err(answer::problem(
            400,
            format!("Push-TTL must be {TTL_RANGE}"),
        )),
    }
}

fn patch(media_type: &str, body: Bytes) -> Result<Patch, OriginResponse> {
    let wrong = |error| answer::problem(400, format!("the patch is invalid: {error}"));
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
            let granted = cors::response_fields(sites, fields, self.documents.cookie_use());
            let mut answer = self.answer(request).await?;
            answer.fields.extend_if(granted.fields(), |_, _| true);
            Ok(answer)
        })
    }

    fn ready_response(&self, target: &[u8]) -> Option<Hit> {
        let (path, _) = split_query(target);
        self.documents.responses.get(path)
    }

    fn ready_response_for(&self, target: &[u8], request: Fields<'_>) -> Option<Hit> {
        let (path, _) = split_query(target);
        let page = self.documents.responses.get(path)?;
        if !self.documents.settings.private.is_empty() {
            let name = std::str::from_utf8(path).ok()?;
            // Other requests take the slow path, which challenges the client.
            self.documents.is_readable_by(name, request).then_some(())?;
        }
        let sites = &self.documents.settings.allow_origins;
        Some(cors::with_response_fields(
            sites,
            request,
            self.documents.cookie_use(),
            page,
        ))
    }
}
