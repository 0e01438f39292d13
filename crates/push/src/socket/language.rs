//! The message protocols of a socket, and the URLs that each can name.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::OriginRequest;

use super::piper::Piper;
use super::{Order, commands};
use crate::changes::change::Change;
use crate::changes::events::Form;
use crate::changes::version::Version;
use crate::documents::no_url::NoUrl;
use crate::name::Prefix;
use crate::paths::WATCH_PATH;
use crate::subscribing::page::Page;
use crate::subscribing::subscription::Subscription;
use crate::subscribing::urls::{FindPage, Found, NoPage, find};

/// The protocol of a socket, with its state.
pub(crate) enum Language {
    Ours {
        /// Resolver of pages, where they may be subscribed to.
        pages: Option<Box<Pages>>,
        wants_deltas: bool,
    },
    Piper(Box<Piper>),
}

/// Prefix of the fields that describe the client's address.
const FORWARDED: &[u8] = b"x-forwarded-";

/// Resolver of pages for the request that opened the socket.
pub(crate) struct Pages {
    request: OriginRequest,
    find: FindPage,
}

impl Pages {
    pub(crate) fn of(request: &OriginRequest, find: &FindPage) -> Box<Self> {
        let mut kept = OriginRequest::bare(
            request.method.clone(),
            request.authority.clone(),
            request.target.clone(),
        );
        kept.scheme = request.scheme;
        // Only fields that describe the client's address are needed; others may be long.
        let says_from_where = |name: &[u8], _: &[u8]| {
            name.eq_ignore_ascii_case(b"forwarded")
                || name.len() > FORWARDED.len()
                    && name[..FORWARDED.len()].eq_ignore_ascii_case(FORWARDED)
        };
        kept.fields
            .extend_if(request.fields.fields(), says_from_where);
        Box::new(Self {
            request: kept,
            find: Arc::clone(find),
        })
    }

    fn find(&self, url: &str) -> Result<Arc<Page>, NoPage> {
        (self.find)(&self.request, url)
    }
}

impl Language {
    /// Creates the Piper protocol for a socket opened at this path.
    pub(crate) fn piper_at(path: &str) -> Self {
        Self::Piper(Box::new(Piper::at(path)))
    }

    pub(super) fn read(&mut self, text: &str) -> Result<Order, NoUrl> {
        match self {
            Self::Ours { .. } => commands::read(text),
            Self::Piper(piper) => piper.read(text),
        }
    }

    /// Resolves a URL.
    pub(super) fn find(&self, url: &str, prefixes: &[Prefix]) -> Result<Found, NoUrl> {
        match self {
            Self::Ours {
                pages: Some(pages), ..
            } => find(url, prefixes, |url| pages.find(url)),
            Self::Ours { pages: None, .. } | Self::Piper(_) => {
                let is_document = |prefix: &Prefix| url.starts_with(prefix.as_str());
                if !prefixes.iter().any(is_document) {
                    let why = format!("{url} is no document; pages are watched at {WATCH_PATH}");
                    return Err(NoUrl::new(400, why));
                }
                find(url, prefixes, |_| Err(NoPage::NoneAllowed))
            }
        }
    }

    /// Polls the next event.
    pub(super) fn poll_told(
        &self,
        subscription: &mut Subscription,
        cx: &mut Context<'_>,
    ) -> Poll<Bytes> {
        match self {
            Self::Ours { wants_deltas, .. } => {
                let delta = if *wants_deltas {
                    Form::JsonDelta
                } else {
                    Form::Json
                };
                subscription.poll_told(cx, delta)
            }
            Self::Piper(piper) => subscription.poll_written(cx, true, |_, next| piper.told(next)),
        }
    }

    /// Returns the confirmation of a subscription, after its snapshot.
    pub(super) fn subscribed(&self, url: &str, place: &str, is_there: bool) -> Bytes {
        match self {
            Self::Ours { .. } => commands::subscribed(url, place),
            Self::Piper(_) if is_there => Bytes::new(),
            Self::Piper(piper) => piper.error(Some(url), &NoUrl::new(404, "not found")),
        }
    }

    pub(super) fn unsubscribed(&self, url: Option<&str>) -> Bytes {
        match self {
            Self::Ours { .. } => commands::unsubscribed(url),
            Self::Piper(_) => Bytes::new(),
        }
    }

    pub(super) fn error(&self, url: Option<&str>, error: &NoUrl) -> Bytes {
        match self {
            Self::Ours { .. } => commands::error(url, error),
            Self::Piper(piper) => piper.error(url, error),
        }
    }

    /// Records a successful subscription.
    pub(super) fn call(&mut self, url: &str) {
        if let Self::Piper(piper) = self {
            piper.call(url);
        }
    }

    /// Returns whether `get` of a pattern returns all matching documents.
    pub(super) const fn gets_several(&self) -> bool {
        matches!(self, Self::Piper(_))
    }

    /// Encodes the document of a `get`.
    pub(super) fn value(&self, change: &Change, version: Version) -> Bytes {
        match self {
            Self::Ours { .. } => commands::value(change, version),
            Self::Piper(piper) => piper.value(change),
        }
    }
}
