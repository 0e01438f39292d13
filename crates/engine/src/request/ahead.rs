//! Fetches that no client waits for: a page is warmed, or a purged one fetched again.

use std::sync::Arc;

use microcache_policy::Detail;
use microcache_store::poll_clock;
use tokio::sync::oneshot;

use crate::cache::fetch_outcome::Failure;
use crate::cache::flight::Role;
use crate::message::ForwardedRequest;
use crate::origin::Urgency;
use crate::request::engine::Engine;
use crate::request::fetch::Fetch;
use crate::request::plan::Refresh;
use crate::request::verdict::Verdict;

/// The result of a fetch ahead of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AheadResult {
    /// A fresh response is in memory or in a tier, or another fetch of it is in progress.
    Fresh,
    /// The origin's response, with this status code, is stored.
    Stored(u16),
    /// The origin's response may not be stored.
    NotStored(Option<Detail>),
    /// The origin gave no response.
    Failed(Failure),
}

impl Engine {
    /// Fetches a response without a client, and waits until it is stored. Its request comes after those of clients; a
    /// client that asks meanwhile joins it, and moves it up.
    pub async fn fetch_ahead(
        self: Arc<Self>,
        refresh: Box<Refresh>,
        mut incoming: ForwardedRequest,
    ) -> AheadResult {
        let Refresh { route, facts, spec } = *refresh;
        self.reduce_to_key(route, &mut incoming);
        let Role::Lead(leader) = self.enter(&spec, None) else {
            return AheadResult::Fresh;
        };
        let (reply, verdict) = oneshot::channel();
        let fetch = Fetch {
            route,
            facts: facts.as_fill(),
            urgency: self.urgency_of_refresh(&spec).unwrap_or(Urgency::Ahead),
            stored: spec.stored,
            incoming: Arc::new(incoming),
            reply: Some(reply),
            withheld: false,
        };
        let fetched = tokio::spawn(poll_clock::task(Box::pin(self.lead(leader, fetch))));
        let abandoned = AheadResult::Failed(Failure::Abandoned);
        // The body is not read here, so nothing else of the verdict may be held while it arrives.
        let (result, filling) = match verdict.await {
            Ok(Verdict::Storable(copy)) => {
                let filling = Arc::clone(&copy.filling);
                (AheadResult::Stored(filling.status), Some(filling))
            }
            Ok(Verdict::Stored(whole)) if whole.is_stored => {
                (AheadResult::Stored(whole.status), None)
            }
            Ok(Verdict::Confirmed(confirmed)) if confirmed.is_kept => {
                (AheadResult::Stored(confirmed.stored.status()), None)
            }
            // A purge came first, or memory has no room for it.
            Ok(Verdict::Stored(_) | Verdict::Confirmed(_)) => (AheadResult::NotStored(None), None),
            Ok(Verdict::Found(..)) => (AheadResult::Fresh, None),
            Ok(
                Verdict::Private(_, why)
                | Verdict::Refused(_, why)
                | Verdict::ConfirmedForOne(_, why)
                | Verdict::FetchDirectly(why),
            ) => (AheadResult::NotStored(Some(why)), None),
            Ok(Verdict::Failed(failed)) => (AheadResult::Failed(failed.failure), None),
            Ok(Verdict::Left) | Err(_) => (abandoned.clone(), None),
        };
        let is_whole = fetched.await.is_ok();
        match filling {
            Some(filling) if !filling.fill.is_whole() || !is_whole => abandoned,
            _ => result,
        }
    }
}
