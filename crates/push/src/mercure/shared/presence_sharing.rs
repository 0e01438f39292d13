//! The presence of this node's subscribers, shared with other nodes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use microcache_store::redis::NoReply;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::history::History;
use super::super::presence::PresenceChange;
use super::super::presence_record;
use super::scripts::{PRESENCE, call};
use crate::fleet::connection::{FleetConnection, TARGET};
use crate::fleet::state::State;

/// Interval of a node's signs of life.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time after its last sign of life after which the subscriptions of a node end.
const LIFETIME: Duration = Duration::from_secs(10);
/// Limit of subscribers per script call.
const MAX_GROUP: usize = 64;
/// Interval between reports of a full list.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// The task that shares presence.
pub(super) struct PresenceSharing {
    connection: FleetConnection,
    history: Arc<Mutex<History>>,
    state: Arc<State>,
    wake: Arc<Notify>,
    /// Time of the last report of a full list.
    reported: Option<Instant>,
}

impl PresenceSharing {
    pub(super) const fn new(
        connection: FleetConnection,
        history: Arc<Mutex<History>>,
        state: Arc<State>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            connection,
            history,
            state,
            wake,
            reported: None,
        }
    }

    /// Runs forever.
    pub(super) async fn run(mut self) {
        let mut heartbeat = interval(HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_heartbeat = tokio::select! {
                _ = heartbeat.tick() => true,
                () = self.wake.notified() => false,
            };
            // After a failure, the next heartbeat finds again what was not shared.
            let shared = self.share(is_heartbeat).await;
            self.state.record_reply(shared.err().as_ref());
        }
    }

    async fn share(&mut self, is_heartbeat: bool) -> Result<(), NoReply> {
        if self.history.lock().compare_presence(is_heartbeat) {
            return Ok(());
        }
        loop {
            let (node, changes) = self.next_changes();
            let is_last = changes.len() < MAX_GROUP;
            let nodes = self.send(node, node, &changes).await?;
            if is_last {
                return if is_heartbeat {
                    self.end_others(node, &nodes).await
                } else {
                    Ok(())
                };
            }
        }
    }

    fn next_changes(&self) -> (u64, Vec<PresenceChange>) {
        let mut history = self.history.lock();
        let local = history.local_presence.as_mut();
        local.map_or_else(Default::default, |local| {
            (local.node(), local.take(MAX_GROUP))
        })
    }

    /// Ends the subscriptions of nodes that have gone.
    async fn end_others(&mut self, node: u64, nodes: &HashSet<u64>) -> Result<(), NoReply> {
        let gone = self.history.lock().presence_list.of_others(nodes);
        for changes in gone.chunk_by(|one, other| one.node() == other.node()) {
            for changes in changes.chunks(MAX_GROUP) {
                self.send(node, changes[0].node(), changes).await?;
            }
        }
        Ok(())
    }

    /// Sends changes of the subscriptions of a node. Returns all nodes.
    async fn send(
        &mut self,
        node: u64,
        owner: u64,
        changes: &[PresenceChange],
    ) -> Result<HashSet<u64>, NoReply> {
        let (capacity, all) = {
            let history = self.history.lock();
            (history.presence.capacity(), history.published.capacity())
        };
        let numbers = [capacity, all, LIFETIME.as_millis() as u64, node, owner];
        let mut arguments: Vec<_> = numbers.map(|it| it.to_string().into_bytes()).into();
        for change in changes {
            let kind = if change.active { "join" } else { "leave" };
            arguments.push(kind.into());
            arguments.push(change.entry.id.as_bytes().into());
            arguments.push(presence_record::write(&change.entry));
        }
        let words = call(&self.connection, &PRESENCE, arguments).await?;
        let is_full = words.first().is_some_and(|word| word == "full");
        let is_due = |at: Instant| at.elapsed() > REPORT_INTERVAL;
        if is_full && self.reported.is_none_or(is_due) {
            self.reported = Some(Instant::now());
            tracing::warn!(
                target: TARGET,
                "the presence list of the Mercure hub is full (mercure_history): some subscriptions are not in it"
            );
        }
        // Other members are none of a node.
        let nodes = words.iter().skip(1);
        Ok(nodes.filter_map(|word| word.parse().ok()).collect())
    }
}
