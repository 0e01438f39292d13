//! A coalesced fetch under way, and its conclusion.

use std::sync::Arc;

use microcache_policy::{FieldsBuf, RequestFacts, Rules, Time, cookies};
use microcache_store::Hit;
use tokio::sync::oneshot;

use crate::cache::flight::Leader;
use crate::message::ForwardedRequest;
use crate::origin::Urgency;
use crate::request::engine::Engine;
use crate::request::verdict::Verdict;

/// A coalesced fetch.
pub(crate) struct Fetch {
    pub(crate) route: usize,
    /// The caching facts of the request ([`RequestFacts::as_fill`]).
    pub(crate) facts: RequestFacts,
    pub(crate) stored: Option<Hit>,
    pub(crate) urgency: Urgency,
    pub(crate) incoming: Arc<ForwardedRequest>,
    /// The channel to the request that leads the fetch; `None` for a refresh.
    pub(crate) reply: Option<oneshot::Sender<Verdict>>,
    /// Fields of the leading request were withheld from the origin.
    pub(crate) withheld: bool,
}

impl Fetch {
    /// Leaves the leader's cookies as they are where the origin did not see them.
    pub(crate) fn keep_own_cookies(&self, response: &mut FieldsBuf, rules: &Rules) {
        if !self.facts.shares_context() {
            cookies::remove_replacements(response, self.incoming.head.fields.fields(), rules);
        }
    }

    /// Publishes the verdict to the waiters, then to the leading request. The request is released
    /// before that.
    pub(crate) fn conclude(self, engine: &Engine, leader: &Leader, verdict: Verdict, now: Time) {
        verdict.publish(&engine.cache, leader, now);
        self.answer(verdict);
    }

    /// Sends the verdict to the leading request, while the others still wait. The request is released before that.
    pub(crate) fn answer(self, verdict: Verdict) {
        drop(self.incoming);
        if let Some(reply) = self.reply {
            let verdict = if self.withheld {
                verdict.for_withheld_request()
            } else {
                verdict
            };
            let _ = reply.send(verdict);
        }
    }
}
