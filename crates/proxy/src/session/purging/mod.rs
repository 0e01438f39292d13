//! Purge requests of application plugins, with their own methods and fields, on the address of visitors:
//! authorization, parsing and response.

mod authorization;
mod pattern;
mod request;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use microcache_engine::cache::{Purged, Scope, Strength};
use microcache_engine::{Engine, Request, Response};
use microcache_policy::Time;

use super::pages;
use crate::lifecycle::Predecessor;
use crate::observe::Kind;
use crate::shared::Shared;

/// An authorized purge to carry out.
pub(super) struct AuthorizedPurge {
    named: Vec<(Scope, Strength)>,
}

/// Most names repeated in a response.
const MOST_NAMES: usize = 16;

impl Shared {
    /// Returns `true` if `purge_from` allows purges and the request is one: it is then never forwarded.
    pub(super) fn takes_for_purge(&self, request: &Request<'_>) -> bool {
        !self.purge_from.is_empty()
            && (request::is_purge(request.method) || self.purged_by_get(request).is_some())
    }

    /// Returns the target that a request below `purge_path` purges, such as `/news/` of `GET /purge/news/`.
    pub(super) fn purged_by_get<'a>(&self, request: &Request<'a>) -> Option<&'a [u8]> {
        let path = self.config.purge_path.as_ref()?;
        let target = request.target.strip_prefix(path.as_bytes())?;
        let is_read = matches!(*request.method, Method::GET | Method::HEAD);
        (is_read && target.starts_with(b"/")).then_some(target)
    }

    /// Returns the purge that a request asks for, or the response to an unauthorized or malformed one; `None` if it is
    /// not a purge ([`Self::takes_for_purge`]). `through` is the peer that sent a PROXY header: it can claim any
    /// client, so its own address has to be authorized too.
    pub(super) fn requested_purge(
        &self,
        request: &Request<'_>,
        through: Option<IpAddr>,
        now: Time,
    ) -> Option<Result<AuthorizedPurge, Response>> {
        if !self.takes_for_purge(request) {
            return None;
        }
        if self.lifecycle.is_handing_over() {
            let text = "This process is being replaced: retry on a new connection.";
            return Some(Err(pages::not_purged(503, text, now)));
        }
        if let Err(unauthorized) = authorization::check(&self.purge_from, request, through) {
            let line = format!(
                "{} from {} was rejected: {unauthorized}",
                request.method, request.address
            );
            self.notices.say(Kind::PurgeRefused, "", line);
            let text = "This address may not purge.";
            return Some(Err(pages::not_purged(403, text, now)));
        }
        let scopes_of_url =
            |host: &[u8], target: &[u8]| self.engine.scopes_of_url(request.scheme, host, target);
        let read = match self.purged_by_get(request) {
            Some(target) => Ok(request::one_url(request, target, scopes_of_url)),
            None => request::read(request, scopes_of_url),
        };
        Some(
            read.map(|named| AuthorizedPurge { named })
                .map_err(|refusal| pages::not_purged(400, &refusal.to_string(), now)),
        )
    }
}

impl AuthorizedPurge {
    /// Carries the purge out even if the client disconnects: plugins that must not delay an editor do not wait for the
    /// response.
    pub(super) fn carry_out(
        self,
        engine: Arc<Engine>,
        predecessor: Arc<Predecessor>,
    ) -> impl Future<Output = Response> {
        let carrier = Arc::clone(&engine);
        let done = tokio::spawn(async move {
            let purged = carrier.cache.purge(self.named).await;
            predecessor.purge(&purged.rules).await;
            response_text(&purged)
        });
        async move {
            let done = done.await;
            let now = engine.clock.now();
            match done {
                Ok(response_text) => pages::purged(&response_text, now),
                Err(_) => pages::panicked(now),
            }
        }
    }
}

/// Returns the text of the response to a purge.
fn response_text(purged: &Purged) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for rule in purged.rules.iter().take(MOST_NAMES) {
        let how = match rule.strength {
            Strength::Hard => "purged",
            Strength::Soft => "purged (soft)",
        };
        let _ = writeln!(text, "{how}: {}", rule.scope);
    }
    let more = purged.rules.len().saturating_sub(MOST_NAMES);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    if let Err(error) = &purged.written {
        let _ = writeln!(text, "In force on this server, but {error}");
    }
    text
}
