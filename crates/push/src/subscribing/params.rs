//! The query parameters of a subscription at [`WATCH_PATH`](crate::paths::WATCH_PATH).

use std::time::Duration;

use microcache_engine::{OriginRequest, OriginResponse};
use microcache_policy::key::split_query;

use crate::access::read_grant::ReaderCredentials;
use crate::answer;
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;
use crate::documents::client_network::ClientNetwork;
use crate::documents::url_error::{MAX_PATTERNS, MAX_URLS, UrlError};
use crate::form::pairs;
use crate::last_event_id;
use crate::name::Pattern;
use crate::subscribing::cursor::ResumePoint;
use crate::subscribing::page::{PageSubscription, PageValidator};
use crate::subscribing::stream::PLACEHOLDER_ID;
use crate::subscribing::subscription::SubscribeRequest;
use crate::subscribing::urls::UrlTarget;
use crate::subscribing::versions::MAX_VERSIONS;

/// Default and limit of `wait`: the time after which long polling returns without an event.
const DEFAULT_WAIT: Duration = Duration::from_secs(25);
const MAX_WAIT: Duration = Duration::from_mins(1);

/// A parsed subscription request.
pub(crate) struct SubscribeParams {
    pub(crate) request: SubscribeRequest,
    pub(crate) wait: Duration,
    /// Stored versions of each document to answer with at once, instead of a subscription.
    pub(crate) history: Option<usize>,
    /// True if the stream starts with a placeholder id: the `version` and `etag` parameters are outdated when
    /// an `EventSource` reconnects with the same URL, and the id reveals the reconnect.
    pub(crate) has_placeholder_id: bool,
}

impl SubscribeRequest {
    /// Turns a position or a version that Redis has lost into a request for a full snapshot.
    pub(crate) fn without_lost_versions(mut self, documents: &Documents) -> Self {
        let resumed = self.last_event_id.iter().flat_map(|point| match point {
            ResumePoint::At(id) => [id.version.number, id.snapshot_through].map(|number| {
                Some(DocumentVersion {
                    number,
                    ..id.version
                })
            }),
            ResumePoint::Unknown => [None; 2],
        });
        let has = self.has.iter().map(|(_, version)| *version);
        let index = documents.index.lock();
        let has_lost_some = resumed
            .flatten()
            .chain(has)
            .any(|version| index.is_lost(version));
        drop(index);
        if has_lost_some {
            self.last_event_id = Some(ResumePoint::Unknown);
            self.has.clear();
        }
        self
    }
}

/// A `url` parameter with the validators of each occurrence: several tabs may share a connection and show
/// different versions of the same page.
struct UrlParam {
    url: String,
    target: UrlTarget,
    occurrences: Vec<ClientValidators>,
}

/// The client's copy of a document or page, from the parameters after its `url`.
#[derive(Clone, Default, PartialEq, Eq)]
struct ClientValidators {
    version: Option<String>,
    tag: Option<String>,
}

impl UrlParam {
    /// Returns the validators if all occurrences agree; otherwise none, so that an event is sent.
    fn validators(&self) -> ClientValidators {
        let first = self.occurrences.first().cloned().unwrap_or_default();
        let is_agreed = self
            .occurrences
            .iter()
            .all(|validators| *validators == first);
        if is_agreed {
            first
        } else {
            ClientValidators::default()
        }
    }

    fn last_occurrence(&mut self) -> Option<&mut ClientValidators> {
        self.occurrences.last_mut()
    }
}

impl SubscribeParams {
    /// Parses a request; `resolve` resolves a URL. Fails with the response to send.
    pub(crate) fn read(
        request: &OriginRequest,
        documents: &Documents,
        credentials: ReaderCredentials,
        resolve: impl Fn(&str) -> Result<UrlTarget, UrlError>,
    ) -> Result<Self, OriginResponse> {
        let refused = |why: String| answer::problem(400, why);
        let mut urls: Vec<UrlParam> = Vec::new();
        let mut about = None;
        let (mut subscribe_request, mut wait) = (SubscribeRequest::default(), DEFAULT_WAIT);
        let mut history = None;
        let (_, query) = split_query(&request.target);
        for pair in pairs(query.unwrap_or_default()) {
            let (name, value) = pair.map_err(|_| refused("the query is not UTF-8".to_owned()))?;
            match &*name {
                "url" => {
                    about = Some(add_url(&mut urls, value, &resolve).map_err(UrlError::answer)?);
                }
                "version" | "etag" => {
                    let one = about.and_then(|at: usize| urls.get_mut(at)?.last_occurrence());
                    match one {
                        Some(validators) if name == "etag" => validators.tag = Some(value),
                        Some(validators) => validators.version = Some(value),
                        None => {}
                    }
                }
                name if last_event_id::is_parameter(name) => {
                    subscribe_request.last_event_id = Some(ResumePoint::parse(&value));
                }
                "deltas" => subscribe_request.options.deltas = value != "0",
                "inline" => subscribe_request.options.content = value != "0",
                "wait" => wait = read_wait(&value).map_err(refused)?,
                "history" => history = Some(read_history(&value).map_err(refused)?),
                _ => {}
            }
        }
        let fields = request.fields.fields();
        subscribe_request.client = ClientNetwork::from_request(fields);
        let reconnect_id = last_event_id::from_fields(fields);
        add_targets(
            &mut subscribe_request,
            urls,
            reconnect_id.is_none(),
            |pattern| documents.authorize(&credentials, pattern),
        )
        .map_err(UrlError::answer)?;
        subscribe_request.grant = credentials.grant();
        // The id of a reconnecting browser is newer than that of the URL.
        if let Some(id) = reconnect_id.filter(|id| id != PLACEHOLDER_ID) {
            subscribe_request.last_event_id = Some(ResumePoint::parse(&id));
            subscribe_request.has.clear();
        }
        Ok(Self {
            has_placeholder_id: subscribe_request
                .pages
                .iter()
                .any(PageSubscription::has_client_copy),
            request: subscribe_request,
            wait,
            history,
        })
    }

    /// Returns whether no URL is subscribed to.
    pub(crate) const fn is_empty(&self) -> bool {
        self.request.documents.is_empty() && self.request.pages.is_empty()
    }
}

/// Adds a `url` parameter, or another occurrence of it; returns its index.
fn add_url(
    urls: &mut Vec<UrlParam>,
    url: String,
    resolve: impl Fn(&str) -> Result<UrlTarget, UrlError>,
) -> Result<usize, UrlError> {
    if let Some(at) = urls.iter().position(|known| known.url == url) {
        urls[at].occurrences.push(ClientValidators::default());
        return Ok(at);
    }
    if urls.len() == MAX_URLS {
        return Err(UrlError::too_many_urls());
    }
    let target = resolve(&url)?;
    urls.push(UrlParam {
        url,
        target,
        occurrences: vec![ClientValidators::default()],
    });
    Ok(urls.len() - 1)
}

/// Adds the URLs to the request. Validators of pages are ignored on a reconnect, since the client may have
/// received newer events.
fn add_targets(
    subscribe_request: &mut SubscribeRequest,
    urls: Vec<UrlParam>,
    is_new: bool,
    authorize: impl Fn(&Pattern) -> Result<(), UrlError>,
) -> Result<(), UrlError> {
    for one in urls {
        let validators = one.validators();
        match one.target {
            UrlTarget::Documents(pattern) => {
                authorize(&pattern)?;
                let version = validators
                    .version
                    .as_deref()
                    .map(|it| it.trim_matches('"').parse());
                if let (Pattern::Exact(name), Some(Ok(version))) = (&pattern, version) {
                    subscribe_request.has.push((name.clone(), version));
                }
                subscribe_request.documents.push(pattern);
            }
            UrlTarget::Page(mut page) => {
                let version = validators
                    .version
                    .and_then(|it| u64::from_str_radix(&it, 16).ok());
                let known = version
                    .map(PageValidator::Version)
                    .or(validators.tag.map(PageValidator::Tag));
                page.set_client_copy(known.filter(|_| is_new));
                subscribe_request.pages.push(page);
            }
        }
    }
    let stars = subscribe_request
        .documents
        .iter()
        .filter(|pattern| pattern.matches_several());
    if stars.count() > MAX_PATTERNS {
        return Err(UrlError::too_many_patterns());
    }
    Ok(())
}

fn read_wait(value: &str) -> Result<Duration, String> {
    let seconds = value.parse().ok().map(Duration::from_secs);
    seconds.filter(|wait| *wait <= MAX_WAIT).ok_or_else(|| {
        format!(
            "wait must be a number of seconds up to {}",
            MAX_WAIT.as_secs()
        )
    })
}

fn read_history(value: &str) -> Result<usize, String> {
    let versions = value.parse().ok();
    versions
        .filter(|it| (1..=MAX_VERSIONS).contains(it))
        .ok_or_else(|| format!("history must be a number of versions from 1 to {MAX_VERSIONS}"))
}
