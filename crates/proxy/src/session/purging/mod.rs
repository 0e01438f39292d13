//! Purges as plugins of applications send them, by methods and fields of their own, to the address
//! that visitors use: who may, what is named, and what he is told.

mod asked;
mod asker;
mod pattern;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use microcache_engine::cache::{Purged, Scope, Strength};
use microcache_engine::{Engine, Request, Response};
use microcache_policy::Time;

use super::pages;
use crate::notices::Kind;
use crate::predecessor::Predecessor;
use crate::shared::Shared;

/// A purge that is to be put in force.
pub(super) struct Purge {
    named: Vec<(Scope, Strength)>,
}

/// So many names are repeated in an answer.
const MOST_TOLD: usize = 16;

impl Shared {
    /// Whether a request is a purge here, and goes no further.
    pub(super) fn takes_for_purge(&self, request: &Request<'_>) -> bool {
        !self.purge_from.is_empty() && asked::is_purge(request.method)
    }

    /// The purge that a request asks for, or the answer to one who may not, or cannot be understood.
    /// `None` if it asks for something else, or nobody may ask for that here. A proxy that has said who asks could have
    /// named anybody: it has to be one who may.
    pub(super) fn purge_asked(
        &self,
        request: &Request<'_>,
        through: Option<IpAddr>,
        now: Time,
    ) -> Option<Result<Purge, Response>> {
        if !self.takes_for_purge(request) {
            return None;
        }
        if self.lifecycle.is_handing_over() {
            let text =
                "Another process takes the place of this one: send it again, on a new connection.";
            return Some(Err(pages::not_purged(503, text, now)));
        }
        let blocks = &self.purge_from;
        let may = |proxy| blocks.iter().any(|block| block.contains(proxy));
        if !through.is_none_or(may) || !asker::is_within(blocks, request) {
            let line = format!(
                "{} was refused to {}: that, or an address behind it, is not in `purge_from`",
                request.method, request.address
            );
            self.notices.say(Kind::PurgeRefused, "", line);
            let text = "Purges are not taken from this address.";
            return Some(Err(pages::not_purged(403, text, now)));
        }
        let scope_of_url =
            |host: &[u8], target: &[u8]| self.engine.scope_of_url(request.scheme, host, target);
        let read = asked::read(request, scope_of_url);
        Some(
            read.map(|named| Purge { named })
                .map_err(|refusal| pages::not_purged(400, &refusal.to_string(), now)),
        )
    }
}

impl Purge {
    /// Puts it in force, whether or not somebody waits for the answer: plugins that must not keep an
    /// editor waiting hang up at once.
    pub(super) fn carry_out(
        self,
        engine: Arc<Engine>,
        predecessor: Arc<Predecessor>,
    ) -> impl Future<Output = Response> {
        let carrier = Arc::clone(&engine);
        let done = tokio::spawn(async move {
            let purged = carrier.cache.purge(self.named).await;
            predecessor.purge(&purged.rules).await;
            told(&purged)
        });
        async move {
            let done = done.await;
            let now = engine.clock.now();
            match done {
                Ok(told) => pages::purged(&told, now),
                Err(_) => pages::panicked(now),
            }
        }
    }
}

/// What the answer to a purge says.
fn told(purged: &Purged) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for rule in purged.rules.iter().take(MOST_TOLD) {
        let how = match rule.strength {
            Strength::Hard => "purged",
            Strength::Soft => "purged, softly",
        };
        let _ = writeln!(text, "{how}: {}", rule.scope);
    }
    let more = purged.rules.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    if let Err(error) = &purged.written {
        let _ = writeln!(text, "It holds until the process ends: {error}");
    }
    text
}
