//! Conversion of the caller's request to the engine's.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, EXPECT, HOST, HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, PRAGMA, RANGE, UPGRADE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, Method, Uri, Version};
use microcache_engine::{Body, FetchPlan, ForwardedRequest, Request, RequestHead};
use microcache_policy::key::normal_host;
use microcache_policy::{FieldsBuf, Millis, Network, Scheme};

use crate::callers_task::CallersTask;
use crate::fields::from_map;
use crate::options::{CacheMode, CacheOptions};
use crate::passthrough::Passthrough;

/// The field of the key for the additions to the url: a `Host` that differs from it, and [`CacheOptions::key`]. No
/// field of a request can have this name.
pub(crate) const KEY_FIELD: &str = "@";

/// The conditions of a request from a caller with a cache of its own.
const CONDITIONS: [HeaderName; 4] = [
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
];

/// The empty client address: requests are not forwarded for other clients.
static NO_ADDRESS: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// A request that the cache may serve: GET or HEAD without a body.
pub(crate) struct CacheableRequest {
    method: Method,
    uri: Uri,
    fields: FieldsBuf,
    headers: HeaderMap,
    extensions: http::Extensions,
    options: CacheOptions,
}

impl CacheableRequest {
    /// Returns true if a request without a body may be served by the cache: a GET or HEAD of a url.
    pub(crate) fn is_for_the_cache(parts: &Parts) -> bool {
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let leaves = parts.headers.contains_key(UPGRADE) || parts.headers.contains_key(EXPECT);
        is_read && !leaves && CacheableUrl::of(&parts.uri).is_some()
    }

    /// Prepares such a request.
    pub(crate) fn new(parts: Parts) -> Self {
        let options = parts.extensions.get::<CacheOptions>();
        let options = options.cloned().unwrap_or_default();
        let mut fields = from_map(&parts.headers);
        #[cfg(feature = "reqwest")]
        if let Some(added) = parts.extensions.get::<crate::added_headers::AddedHeaders>() {
            added.push_to(&mut fields, &parts.headers);
        }
        push_key(&mut fields, &parts.uri, &parts.headers, &options);
        if let Some(words) = lookup_directives(options.mode) {
            fields.push("Cache-Control", words);
        }
        let mut extensions = parts.extensions;
        extensions.insert(RequestVersion(parts.version));
        Self {
            method: parts.method,
            uri: parts.uri,
            fields,
            headers: parts.headers,
            extensions,
            options,
        }
    }

    /// Adds a slot to the request that receives the unstored parts of its response.
    pub(crate) fn passthrough(&mut self) -> Passthrough {
        let passthrough = Passthrough::default();
        self.extensions.insert(passthrough.clone());
        passthrough
    }

    /// Adds a handle of the current task, in which the inner service will be called.
    pub(crate) fn callers_task(&mut self) -> CallersTask {
        let task = CallersTask::default();
        self.extensions.insert(task.clone());
        task
    }

    pub(crate) const fn mode(&self) -> CacheMode {
        self.options.mode
    }

    /// Returns true for a range request or a HEAD request.
    pub(crate) fn wants_less(&self) -> bool {
        self.method == Method::HEAD || self.has(&RANGE)
    }

    /// The plan to the server: for a shared response, or for this request alone. Conditional and range requests
    /// that miss do not fetch the whole representation.
    pub(crate) fn plan(&self, plan: FetchPlan) -> FetchPlan {
        let has_it = CONDITIONS.iter().any(|name| self.has(name));
        let is_alone = self.wants_less() || has_it && !plan.may_be_confirmed();
        if is_alone { plan.direct() } else { plan }
    }

    fn has(&self, name: &HeaderName) -> bool {
        self.fields.fields().contains(name.as_str())
    }

    fn place(&self) -> CacheableUrl<'_> {
        CacheableUrl::of(&self.uri).expect("it was looked at before")
    }

    /// The view of the request for a look-up.
    pub(crate) fn as_request(&self) -> Request<'_> {
        let place = self.place();
        Request {
            method: &self.method,
            fields: self.fields.fields(),
            // The caller's own fields are trusted.
            is_trusted: true,
            ttl: self.options.ttl.map(millis),
            ..Request::of_url(place.scheme, place.host, place.target)
        }
    }

    /// Adds the directives of its cache mode for caches on the path.
    fn add_forwarded_directives(&mut self) {
        if !self.headers.contains_key(CACHE_CONTROL)
            && let Some(words) = forwarded_directives(self.options.mode)
        {
            self.headers.insert(CACHE_CONTROL, words.cache_control);
            if words.pragma && !self.headers.contains_key(PRAGMA) {
                self.headers.insert(PRAGMA, NO_CACHE);
            }
        }
    }

    /// The request for the inner service, without the cache.
    pub(crate) fn into_request<B: Default>(mut self) -> http::Request<B> {
        self.add_forwarded_directives();
        let mut request = http::Request::new(B::default());
        if let Some(RequestVersion(version)) = self.extensions.remove() {
            *request.version_mut() = version;
        }
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        *request.extensions_mut() = self.extensions;
        request
    }

    /// The request for the inner service, with its fields for a fetch.
    pub(crate) fn into_forwarded(mut self) -> ForwardedRequest {
        self.add_forwarded_directives();
        let place = self.place();
        ForwardedRequest {
            head: RequestHead {
                scheme: place.scheme,
                host: place.normal_host(),
                target: Bytes::copy_from_slice(place.target),
                method: self.method,
                fields: self.fields.into(),
                address: Arc::clone(&NO_ADDRESS),
                upgrade: false,
                is_trusted: true,
                id: None,
            },
            outgoing: from_map(&self.headers),
            network: Network::from_bits(0),
            body: Body::Empty,
            length: None,
            content: None,
            client: None,
            interim: None,
            span: None,
            ttl: self.options.ttl.map(millis),
            anew: self.options.mode == CacheMode::Reload,
            extensions: self.extensions,
        }
    }
}

/// The HTTP version of the caller's request.
#[derive(Clone, Copy)]
pub(crate) struct RequestVersion(pub(crate) Version);

/// Appends the components of the key in addition to the url.
fn push_key(fields: &mut FieldsBuf, uri: &Uri, headers: &HeaderMap, options: &CacheOptions) {
    let authority = uri.authority().map(Authority::as_str).unwrap_or_default();
    for host in headers.get_all(HOST) {
        if !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) {
            fields.push(KEY_FIELD, [b"host ", host.as_bytes()].concat());
        }
    }
    if let Some(key) = &options.key {
        fields.push(KEY_FIELD, format!("key {}", hex::encode(key)));
    }
}

/// The parts of a cacheable url.
pub(crate) struct CacheableUrl<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) host: &'a [u8],
    pub(crate) target: &'a [u8],
}

impl<'a> CacheableUrl<'a> {
    /// Parses a url. `None` if it is relative, of another scheme, or has user information.
    pub(crate) fn of(uri: &'a Uri) -> Option<Self> {
        let scheme = match uri.scheme_str()? {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        if authority.contains('@') {
            return None;
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Some(Self {
            scheme,
            host: authority.as_bytes(),
            target: target.as_bytes(),
        })
    }

    /// The normalized host, as in keys.
    pub(crate) fn normal_host(&self) -> Bytes {
        normal_host(self.scheme, self.host).into()
    }
}

const NO_CACHE: http::HeaderValue = http::HeaderValue::from_static("no-cache");

/// The directives of a mode for caches on the path, added unless the caller sends its own.
struct ForwardedDirectives {
    cache_control: http::HeaderValue,
    pragma: bool,
}

fn forwarded_directives(mode: CacheMode) -> Option<ForwardedDirectives> {
    let (cache_control, pragma) = match mode {
        CacheMode::NoStore | CacheMode::Reload => (NO_CACHE, true),
        CacheMode::NoCache => (http::HeaderValue::from_static("max-age=0"), false),
        CacheMode::Default | CacheMode::ForceCache | CacheMode::OnlyIfCached => return None,
    };
    Some(ForwardedDirectives {
        cache_control,
        pragma,
    })
}

/// The directives of a mode for this cache (RFC 9111 §5.2.1).
const fn lookup_directives(mode: CacheMode) -> Option<&'static str> {
    match mode {
        CacheMode::Default | CacheMode::NoStore => None,
        CacheMode::Reload | CacheMode::NoCache => Some("no-cache"),
        CacheMode::ForceCache => Some("max-stale"),
        CacheMode::OnlyIfCached => Some("only-if-cached, max-stale"),
    }
}

pub(crate) fn millis(span: Duration) -> Millis {
    span.as_millis().try_into().unwrap_or(Millis::MAX)
}
