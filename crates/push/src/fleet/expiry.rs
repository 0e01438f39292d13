//! Expiry of shared documents, by whichever node is first.

use std::sync::Arc;
use std::time::Duration;

use microcache_store::redis::NoReply;
use tokio::time::sleep;

use super::connection::{FleetConnection, REPLY_TIMEOUT};
use super::scripts::{EXPIRE, ExpireReply, STREAM_LENGTH, epoch};
use super::state::State;
use crate::changes::change::DocumentChange;
use crate::documents::Documents;

/// Bounds of the interval between two searches.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Jitter between nodes, in milliseconds.
const SPREAD: u64 = 20;
/// Limit of documents per script call.
const MAX_GROUP: usize = 256;

/// The task that expires documents.
pub(super) struct Expiry {
    connection: FleetConnection,
    documents: Arc<Documents>,
    state: Arc<State>,
}

impl Expiry {
    pub(super) const fn new(
        connection: FleetConnection,
        documents: Arc<Documents>,
        state: Arc<State>,
    ) -> Self {
        Self {
            connection,
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
            self.stop_serving();
            sleep(LONGEST_WAIT).await;
        }
    }

    /// Stops serving expired documents; their deletion is delivered when Redis can be reached.
    fn stop_serving(&self) {
        let now = self.documents.clock.now();
        let expired = self.documents.index.lock().expired(now);
        for name in expired {
            self.documents.responses.remove(&name);
        }
    }

    fn until_next(&self) -> Duration {
        let next = self.documents.index.lock().next_expiry();
        let now = self.documents.clock.now();
        let wait = next.map_or(LONGEST_WAIT, |at| Duration::from_millis(at.since(now)));
        wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    fn due(&self) -> Vec<Arc<DocumentChange>> {
        let index = self.documents.index.lock();
        let names = index.expired(self.documents.clock.now());
        let due = names.iter().take(MAX_GROUP);
        due.filter_map(|name| index.current(name).map(Arc::clone))
            .collect()
    }

    async fn expire(&self, due: &[Arc<DocumentChange>]) -> Result<(), NoReply> {
        let mut arguments = vec![
            epoch(microcache_store::random::number()),
            STREAM_LENGTH.to_string(),
        ];
        for change in due {
            arguments.extend([change.name.to_string(), change.number.to_string()]);
        }
        let (line, keys) = (&self.connection.line, self.connection.keys());
        let reply = line.call(&EXPIRE, &keys, &arguments, REPLY_TIMEOUT).await;
        self.state.record_reply(reply.as_ref().err());
        let expired = ExpireReply::read(reply?)?;
        self.documents.counters.expired.add(expired.deleted);
        let left = due.iter().zip(&expired.left).filter(|(_, left)| **left > 0);
        let mut longest = 0;
        for (change, left) in left {
            // The server's clock is behind: restore the response that may have been removed.
            self.documents.restore_response(change);
            longest = longest.max(*left);
        }
        sleep(Duration::from_millis(longest).min(LONGEST_WAIT)).await;
        Ok(())
    }
}
