//! Expiry of shared documents, by whichever node is first.

use std::sync::Arc;
use std::time::Duration;

use microcache_store::redis::NoReply;
use tokio::time::sleep;

use super::scripts::{EXPIRE, Expired, KEPT, epoch};
use super::state::State;
use super::{PATIENCE, Wire};
use crate::changes::change::Change;
use crate::documents::Documents;

/// Bounds of the interval between two searches.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Jitter between nodes, in milliseconds.
const SPREAD: u64 = 20;
/// Limit of documents per script call.
const TOGETHER: usize = 256;

/// The task that expires documents.
pub(super) struct Expiry {
    wire: Wire,
    documents: Arc<Documents>,
    state: Arc<State>,
}

impl Expiry {
    pub(super) const fn new(wire: Wire, documents: Arc<Documents>, state: Arc<State>) -> Self {
        Self {
            wire,
            documents,
            state,
        }
    }

    /// Runs forever.
    pub(super) async fn run(self) {
        loop {
            sleep(self.until_next()).await;
            if self.due().is_empty() {
                continue;
            }
            sleep(Duration::from_millis(
                microcache_store::random::number() % SPREAD,
            ))
            .await;
            let due = self.due();
            let Err(_) = self.expire(&due).await else {
                continue;
            };
            self.hide_all();
            sleep(LONGEST_WAIT).await;
        }
    }

    /// Stops serving expired documents; their deletion is delivered when Redis can be reached.
    fn hide_all(&self) {
        let now = self.documents.clock.now();
        let expired = self.documents.books.lock().expired(now);
        for name in expired {
            self.documents.pages.hide(&name);
        }
    }

    fn until_next(&self) -> Duration {
        let next = self.documents.books.lock().next_expiry();
        let now = self.documents.clock.now();
        let wait = next.map_or(LONGEST_WAIT, |at| Duration::from_millis(at.since(now)));
        wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    fn due(&self) -> Vec<Arc<Change>> {
        let books = self.documents.books.lock();
        let names = books.expired(self.documents.clock.now());
        let due = names.iter().take(TOGETHER);
        due.filter_map(|name| books.now(name).map(Arc::clone))
            .collect()
    }

    async fn expire(&self, due: &[Arc<Change>]) -> Result<(), NoReply> {
        let mut arguments = vec![epoch(microcache_store::random::number()), KEPT.to_string()];
        for change in due {
            arguments.extend([change.name.to_string(), change.number.to_string()]);
        }
        let (line, keys) = (&self.wire.line, self.wire.keys());
        let reply = line.call(&EXPIRE, &keys, &arguments, PATIENCE).await;
        self.state.note_answer(reply.as_ref().err());
        let expired = Expired::read(reply?)?;
        self.documents.counters.expired.add(expired.gone);
        let left = due.iter().zip(&expired.left).filter(|(_, left)| **left > 0);
        let mut longest = 0;
        for (change, left) in left {
            // The server's clock is behind: restore the response that may have been removed.
            self.documents.show(change);
            longest = longest.max(*left);
        }
        sleep(Duration::from_millis(longest).min(LONGEST_WAIT)).await;
        Ok(())
    }
}
