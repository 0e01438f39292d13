//! In which language a socket is spoken, and what can be named in it.

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

/// One of them, and what it needs.
pub(crate) enum Language {
    Ours {
        /// Where pages of the application may be named.
        pages: Option<Box<Pages>>,
        wants_deltas: bool,
    },
    Piper(Box<Piper>),
}

/// What the names of fields begin with that say from where a request came.
const FORWARDED: &[u8] = b"x-forwarded-";

/// How pages are found, for who sent a request.
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
        // From where it came counts, and the rest may be long.
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
    /// Another one, for a socket that was opened at this path.
    pub(crate) fn piper_at(path: &str) -> Self {
        Self::Piper(Box::new(Piper::at(path)))
    }

    pub(super) fn read(&mut self, text: &str) -> Result<Order, NoUrl> {
        match self {
            Self::Ours { .. } => commands::read(text),
            Self::Piper(piper) => piper.read(text),
        }
    }

    /// What a url stands for.
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

    /// What happens next, as it is told.
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

    /// That all is told of what was subscribed to, and from where it goes on.
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

    /// A subscription was made.
    pub(super) fn call(&mut self, url: &str) {
        if let Self::Piper(piper) = self {
            piper.call(url);
        }
    }

    /// Whether what has a star is answered with all documents that it stands for.
    pub(super) const fn gets_several(&self) -> bool {
        matches!(self, Self::Piper(_))
    }

    /// A document that was asked for.
    pub(super) fn value(&self, change: &Change, version: Version) -> Bytes {
        match self {
            Self::Ours { .. } => commands::value(change, version),
            Self::Piper(piper) => piper.value(change),
        }
    }
}
