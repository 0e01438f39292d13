//! The message protocols of a socket, and the URLs that each can name.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::OriginRequest;

use super::piper::Piper;
use super::{SocketCommand, commands};
use crate::changes::change::DocumentChange;
use crate::changes::encodings::EventEncoding;
use crate::changes::events::EventFormat;
use crate::changes::version::DocumentVersion;
use crate::documents::url_error::UrlError;
use crate::name::Prefix;
use crate::paths::WATCH_PATH;
use crate::subscribing::page::PageTopic;
use crate::subscribing::subscription::Subscription;
use crate::subscribing::urls::{FindPage, PageError, UrlTarget, resolve};

/// The protocol of a socket, with its state.
pub(crate) enum Language {
    Native {
        /// Resolver of pages, where they may be subscribed to.
        pages: Option<Box<PageResolver>>,
        wants_deltas: bool,
    },
    Piper(Box<Piper>),
}

/// Prefix of the fields that describe the client's address.
const FORWARDED: &[u8] = b"x-forwarded-";

/// Resolver of pages for the request that opened the socket.
pub(crate) struct PageResolver {
    request: OriginRequest,
    find: FindPage,
}

impl PageResolver {
    pub(crate) fn new(request: &OriginRequest, find: &FindPage) -> Box<Self> {
        let mut stored = OriginRequest::bare(
            request.method.clone(),
            request.authority.clone(),
            request.target.clone(),
        );
        stored.scheme = request.scheme;
        // Only fields that describe the client's address are needed; others may be long.
        let describes_client = |name: &[u8], _: &[u8]| {
            name.eq_ignore_ascii_case(b"forwarded")
                || name.len() > FORWARDED.len()
                    && name[..FORWARDED.len()].eq_ignore_ascii_case(FORWARDED)
        };
        stored
            .fields
            .extend_if(request.fields.fields(), describes_client);
        Box::new(Self {
            request: stored,
            find: Arc::clone(find),
        })
    }

    fn resolve(&self, url: &str) -> Result<Arc<PageTopic>, PageError> {
        (self.find)(&self.request, url)
    }
}

impl Language {
    /// Creates the Piper protocol for a socket opened at this path.
    pub(crate) fn piper_at(path: &str) -> Self {
        Self::Piper(Box::new(Piper::new(path)))
    }

    pub(super) fn read(&mut self, text: &str) -> Result<SocketCommand, UrlError> {
        match self {
            Self::Native { .. } => commands::read(text),
            Self::Piper(piper) => piper.read(text),
        }
    }

    /// Resolves a URL.
    pub(super) fn find(&self, url: &str, prefixes: &[Prefix]) -> Result<UrlTarget, UrlError> {
        match self {
            Self::Native {
                pages: Some(pages), ..
            } => resolve(url, prefixes, |url| pages.resolve(url)),
            Self::Native { pages: None, .. } | Self::Piper(_) => {
                let is_document = |prefix: &Prefix| url.starts_with(prefix.as_str());
                if !prefixes.iter().any(is_document) {
                    let why =
                        format!("{url} is not a document; pages can be watched at {WATCH_PATH}");
                    return Err(UrlError::new(400, why));
                }
                resolve(url, prefixes, |_| Err(PageError::NoneAllowed))
            }
        }
    }

    /// Polls the next event.
    pub(super) fn poll_delivery(
        &self,
        subscription: &mut Subscription,
        cx: &mut Context<'_>,
    ) -> Poll<Bytes> {
        match self {
            Self::Native { wants_deltas, .. } => {
                let delta = if *wants_deltas {
                    EventFormat::JsonDelta
                } else {
                    EventFormat::Json
                };
                subscription.poll_json(cx, delta)
            }
            Self::Piper(piper) => {
                let encode = |_: &mut _, next| EventEncoding::Encoded(piper.encode_delivery(&next));
                subscription.poll_with(cx, true, encode)
            }
        }
    }

    /// Returns the confirmation of a subscription, after its snapshot.
    pub(super) fn subscribed(&self, url: &str, place: &str, is_there: bool) -> Bytes {
        match self {
            Self::Native { .. } => commands::subscribed(url, place),
            Self::Piper(_) if is_there => Bytes::new(),
            Self::Piper(piper) => piper.error(Some(url), &UrlError::new(404, "not found")),
        }
    }

    pub(super) fn unsubscribed(&self, url: Option<&str>) -> Bytes {
        match self {
            Self::Native { .. } => commands::unsubscribed(url),
            Self::Piper(_) => Bytes::new(),
        }
    }

    pub(super) fn error(&self, url: Option<&str>, error: &UrlError) -> Bytes {
        match self {
            Self::Native { .. } => commands::error(url, error),
            Self::Piper(piper) => piper.error(url, error),
        }
    }

    /// Records a successful subscription.
    pub(super) fn record_subscription(&mut self, url: &str) {
        if let Self::Piper(piper) = self {
            piper.record_subscription(url);
        }
    }

    /// Returns whether `get` of a pattern returns all matching documents.
    pub(super) const fn get_accepts_patterns(&self) -> bool {
        matches!(self, Self::Piper(_))
    }

    /// Encodes the document of a `get`.
    pub(super) fn value(&self, change: &DocumentChange, version: DocumentVersion) -> Bytes {
        match self {
            Self::Native { .. } => commands::value(change, version),
            Self::Piper(piper) => piper.value(change),
        }
    }
}
