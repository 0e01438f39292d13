//! Requests of nobody in particular: what everybody is given who says nothing of himself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::{Body, FetchPlan, Served};
use microcache_policy::{CacheStatus, Fields, FieldsBuf, Scheme, says_https};
use tokio::time::timeout;

use super::explaining::drain;
use super::{Head, OwnedHead, Session};
use microcache_policy::network::address;

/// What `live.js` takes. Who asks with the same words is given the same where the application answers each of
/// them otherwise.
const TYPES: &str = "text/html,*/*;q=0.8";
/// What browsers take.
const CODINGS: &str = "gzip, deflate, br, zstd";
/// How long an answer may take, with all of its body.
const PATIENCE: Duration = Duration::from_mins(1);

/// A GET without cookies and credentials.
pub(crate) struct PlainGet(OwnedHead);

/// What became of having a page renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshened {
    /// The application is asked, or was.
    Asked,
    /// What it answers is not kept.
    NotKept,
}

impl PlainGet {
    pub(crate) fn of(host: Bytes, target: Bytes) -> Self {
        let mut fields = FieldsBuf::new();
        fields.push("Accept", TYPES);
        fields.push("Accept-Encoding", CODINGS);
        Self(OwnedHead {
            method: Method::GET,
            host,
            target,
            fields: fields.into(),
            has_body: false,
            upgrade: false,
        })
    }

    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            method: &self.0.method,
            host: &self.0.host,
            target: &self.0.target,
            fields: self.0.fields.fields(),
            has_body: self.0.has_body,
            upgrade: self.0.upgrade,
        }
    }
}

impl Session {
    /// Has what is stored for a request renewed, if it is not fresh.
    pub(crate) async fn freshen(&self, plain: &PlainGet) -> Freshened {
        let engine = &self.shared.engine;
        let served = engine.serve(&self.request(plain.head()), engine.clock.now());
        let question = match served {
            Served::Now(_) => return Freshened::Asked,
            Served::NowAndRefresh(_, refresh) => {
                self.refresh(refresh, &self.request(plain.head()));
                return Freshened::Asked;
            }
            Served::Ask(question @ FetchPlan::Coalesced(_)) => question,
            Served::Ask(FetchPlan::Direct(_)) | Served::Failed(_) => return Freshened::NotKept,
        };
        let rules = &engine.rules(question.route()).request;
        let incoming = self.incoming(plain.0.clone(), rules, Body::Empty);
        let asked = async {
            let mut answer = Arc::clone(engine).ask(question, incoming).await.ok()?;
            let is_kept = may_be_kept(&answer.cache_status) || answer.status >= 500;
            // What nobody stores is not read.
            let body = std::mem::replace(&mut answer.body, Body::Empty);
            if is_kept {
                drain(body).await;
            }
            Some(is_kept)
        };
        match timeout(PATIENCE, asked).await {
            Ok(Some(false)) if self.is_not_kept(plain) => Freshened::NotKept,
            _ => Freshened::Asked,
        }
    }

    /// Somebody else's fetch may have brought it.
    fn is_not_kept(&self, plain: &PlainGet) -> bool {
        let engine = &self.shared.engine;
        let request = self.request(plain.head());
        engine.peek(&request, engine.clock.now()).is_none()
    }
}

/// Whether the application lets its answer be kept. A response that was shared with other requests is one that may be,
/// and so is one that was not stored for no reason of its own: a purge came first.
const fn may_be_kept(status: &CacheStatus) -> bool {
    status.stored || status.collapsed || status.detail.is_none()
}

/// How whoever sends a request reached the first of those who passed it on, by what it says when it goes on.
pub(crate) fn visitor_scheme(fields: Fields<'_>) -> Option<Scheme> {
    fields.contains("x-forwarded-proto").then(|| {
        if says_https(fields) {
            Scheme::Https
        } else {
            Scheme::Http
        }
    })
}

/// The address of whoever has connected, by what a request says when it goes on.
pub(crate) fn client_address(fields: Fields<'_>) -> Option<IpAddr> {
    fields.members("x-forwarded-for").last().and_then(address)
}
