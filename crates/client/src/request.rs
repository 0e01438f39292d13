//! From the caller's request to the engine's.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, EXPECT, HOST, HeaderMap, PRAGMA, RANGE, UPGRADE};
use http::request::Parts;
use http::{Method, Uri};
use microcache_engine::{Body, Incoming, Request};
use microcache_policy::key::normal_host;
use microcache_policy::{FieldBlock, FieldsBuf, Millis, Scheme};

use crate::fields::from_map;
use crate::options::{CacheMode, CacheOptions};

/// What the key says beside the url: who is asked for under another name than the url's, and what the caller adds.
/// No field of a request can be called that.
pub(crate) const KEY_FIELDS: [&str; 2] = [OTHER_HOST, OWN_KEY];
const OTHER_HOST: &str = "@host";
const OWN_KEY: &str = "@key";

/// Nobody forwards requests here.
static NOBODY: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// A request for the cache: GET or HEAD, without a body, of a url.
pub(crate) struct Asked {
    method: Method,
    scheme: Scheme,
    host: Bytes,
    target: Bytes,
    fields: FieldsBuf,
    headers: HeaderMap,
    extensions: http::Extensions,
    options: CacheOptions,
}

impl Asked {
    /// Where a request leads, if it is for the cache: a GET or HEAD of a url.
    pub(crate) fn place(parts: &Parts) -> Option<Place> {
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let leaves = parts.headers.contains_key(UPGRADE) || parts.headers.contains_key(EXPECT);
        Place::of(&parts.uri).filter(|_| is_read && !leaves)
    }

    /// A request without a body that leads there.
    pub(crate) fn new(parts: Parts, place: Place) -> Self {
        let options = parts.extensions.get::<CacheOptions>();
        let options = options.cloned().unwrap_or_default();
        let mut fields = from_map(&parts.headers);
        if let Some(words) = look_up_words(options.mode) {
            fields.push("Cache-Control", words);
        }
        for host in parts.headers.get_all(HOST) {
            fields.push(OTHER_HOST, host);
        }
        if let Some(key) = &options.key {
            fields.push(OWN_KEY, hex::encode(key));
        }
        Self {
            method: parts.method,
            scheme: place.scheme,
            host: place.host,
            target: place.target,
            fields,
            headers: parts.headers,
            extensions: parts.extensions,
            options,
        }
    }

    pub(crate) const fn mode(&self) -> CacheMode {
        self.options.mode
    }

    /// Whether it wants less than the whole, which it would cost to fetch.
    pub(crate) fn wants_less(&self) -> bool {
        self.method == Method::HEAD || self.headers.contains_key(RANGE)
    }

    /// The view that a look-up takes.
    pub(crate) fn as_request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            fields: self.fields.fields(),
            // It says who it is for, and is believed.
            vouched: true,
            ttl: self.options.ttl.map(millis),
            ..Request::of_url(self.scheme, &self.host, &self.target)
        }
    }

    /// The same, and what it takes to ask the server.
    pub(crate) fn into_incoming(mut self) -> Incoming {
        if !self.headers.contains_key(CACHE_CONTROL)
            && let Some(words) = words_on_the_way(self.options.mode)
        {
            self.headers.insert(CACHE_CONTROL, words.cache_control);
            if words.pragma && !self.headers.contains_key(PRAGMA) {
                self.headers.insert(PRAGMA, NO_CACHE);
            }
        }
        Incoming {
            method: self.method,
            scheme: self.scheme,
            host: normal_host(self.scheme, &self.host).into(),
            target: self.target,
            outgoing: from_map(&self.headers),
            fields: FieldBlock::from(self.fields),
            address: Arc::clone(&NOBODY),
            body: Body::Empty,
            length: None,
            upgrade: false,
            vouched: true,
            client: None,
            interim: None,
            span: None,
            ttl: self.options.ttl.map(millis),
            extensions: self.extensions,
        }
    }
}

/// Where a url leads.
pub(crate) struct Place {
    pub(crate) scheme: Scheme,
    pub(crate) host: Bytes,
    pub(crate) target: Bytes,
}

impl Place {
    /// `None` if it is not absolute, of another scheme, or names a user.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
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
            host: Bytes::copy_from_slice(authority.as_bytes()),
            target: Bytes::copy_from_slice(target.as_bytes()),
        })
    }
}

const NO_CACHE: http::HeaderValue = http::HeaderValue::from_static("no-cache");

/// What a mode says to caches on the way, where the caller says nothing himself.
struct OnTheWay {
    cache_control: http::HeaderValue,
    pragma: bool,
}

fn words_on_the_way(mode: CacheMode) -> Option<OnTheWay> {
    let (cache_control, pragma) = match mode {
        CacheMode::NoStore | CacheMode::Reload => (NO_CACHE, true),
        CacheMode::NoCache => (http::HeaderValue::from_static("max-age=0"), false),
        CacheMode::Default | CacheMode::ForceCache | CacheMode::OnlyIfCached => return None,
    };
    Some(OnTheWay {
        cache_control,
        pragma,
    })
}

/// What a mode says to this cache, in the words of RFC 9111 §5.2.1.
const fn look_up_words(mode: CacheMode) -> Option<&'static str> {
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
