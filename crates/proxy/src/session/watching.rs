//! Requests of the push side for public pages, without cookies and credentials.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use microcache_engine::{Body, FetchPlan, Request, Served};
use microcache_policy::{CacheStatus, Fields, FieldsBuf, Scheme, says_https};
use tokio::time::timeout;

use super::Session;
use super::explaining::drain;
use microcache_policy::network::address;

/// `Accept` of `live.js`. Clients with the same value share a variant where the application varies by it.
pub(super) const TYPES: &str = "text/html,*/*;q=0.8";
/// `Accept-Encoding` of browsers.
pub(super) const CODINGS: &str = "gzip, deflate, br, zstd";
/// Time limit of a complete response.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A GET without cookies and credentials.
pub(crate) struct PlainGet {
    host: Bytes,
    target: Bytes,
    fields: FieldsBuf,
}

/// Outcome of refreshing a watched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshOutcome {
    /// A request to the application is in progress, or was made.
    Requested,
    /// Its response is not stored.
    NotStored,
}

impl PlainGet {
    pub(crate) fn of(host: Bytes, target: Bytes) -> Self {
        let mut fields = FieldsBuf::new();
        fields.push("Accept", TYPES);
        fields.push("Accept-Encoding", CODINGS);
        Self {
            host,
            target,
            fields,
        }
    }

    /// Returns the request on a connection.
    pub(crate) fn on<'a>(&'a self, session: &'a Session) -> Request<'a> {
        session.request(&Method::GET, &self.host, &self.target, self.fields.fields())
    }
}

impl Session {
    /// Revalidates the stored response to a request unless it is fresh.
    pub(crate) async fn freshen(&self, page: &PlainGet) -> RefreshOutcome {
        let engine = &self.shared.engine;
        let request = page.on(self);
        let served = engine.serve(&request, engine.clock.now());
        let plan = match served {
            Served::Now(_) => return RefreshOutcome::Requested,
            Served::NowAndRefresh(_, refresh) => {
                self.refresh(refresh, &request);
                return RefreshOutcome::Requested;
            }
            Served::Fetch(plan @ FetchPlan::Coalesced(_)) => plan,
            Served::Fetch(FetchPlan::Direct(_)) | Served::Failed(_) => {
                return RefreshOutcome::NotStored;
            }
        };
        let rules = engine.rules(plan.route_index());
        let incoming = self.incoming(self.copied(&request), rules, Body::Empty);
        let refreshed = async {
            let mut answer = Arc::clone(engine).ask(plan, incoming).await.ok()?;
            let is_kept = may_be_stored(&answer.cache_status) || answer.status >= 500;
            // A response that is not stored is not read.
            let body = std::mem::replace(&mut answer.body, Body::Empty);
            if is_kept {
                drain(body).await;
            }
            Some(is_kept)
        };
        match timeout(TIME_LIMIT, refreshed).await {
            Ok(Some(false)) if self.is_not_stored(page) => RefreshOutcome::NotStored,
            _ => RefreshOutcome::Requested,
        }
    }

    /// A concurrent fetch may have stored it.
    fn is_not_stored(&self, plain: &PlainGet) -> bool {
        let engine = &self.shared.engine;
        engine.peek(&plain.on(self), engine.clock.now()).is_none()
    }
}

/// Returns true if the application allows its response to be stored: it was stored or shared with other requests, or only a
/// purge came in between.
const fn may_be_stored(status: &CacheStatus) -> bool {
    status.stored || status.collapsed || status.detail.is_none()
}

/// Returns the scheme that the visitor used, by the forwarding fields of an outgoing request.
pub(crate) fn visitor_scheme(fields: Fields<'_>) -> Option<Scheme> {
    fields.contains("x-forwarded-proto").then(|| {
        if says_https(fields) {
            Scheme::Https
        } else {
            Scheme::Http
        }
    })
}

/// Returns the address of the peer, by the forwarding fields of an outgoing request.
pub(crate) fn client_address(fields: Fields<'_>) -> Option<IpAddr> {
    fields.members("x-forwarded-for").last().and_then(address)
}
