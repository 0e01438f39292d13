//! The reader of the hub's streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{NoReply, cmd};
use parking_lot::Mutex;
use tokio::time::sleep;

use super::super::history::History;
use super::super::id::event_ids;
use super::super::presence_record;
use super::foreign_key::explained;
use super::hub_record::{HubContent, HubPosition, HubRecord, PAGE, page};
use super::scripts::{NEWEST, call, version};
use crate::fleet::connection::{
    BLOCK, FleetConnection, PAUSE, READ_TIMEOUT, TARGET, transfer_time,
};
use crate::fleet::state::State;
use crate::wait_list::Wakeups;

/// The task that follows the streams.
pub(super) struct HubReader {
    connection: FleetConnection,
    history: Arc<Mutex<History>>,
    state: Arc<State>,
    /// The last entries applied; `None` if the history has to be loaded.
    at: Option<HubPosition>,
}

impl HubReader {
    pub(super) const fn new(
        connection: FleetConnection,
        history: Arc<Mutex<History>>,
        state: Arc<State>,
    ) -> Self {
        Self {
            connection,
            history,
            state,
            at: None,
        }
    }

    /// Runs forever.
    pub(super) async fn run(mut self) {
        loop {
            match self.follow().await {
                Ok(()) => self.state.record_contact(),
                Err(why) => {
                    let why = explained(&self.connection, why).await;
                    let degraded = self.connection.line.degraded();
                    self.state.record_outage(&why, &degraded);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> Result<(), NoReply> {
        let Some(mut at) = self.at.clone() else {
            return self.load().await;
        };
        let page = self.read(&at, Some(BLOCK)).await?;
        if page.is_empty() && !self.newest().await?.includes(&at) {
            self.begin_anew();
            return Ok(());
        }
        for record in page {
            if !at.advance(&record) {
                self.begin_anew();
                return Ok(());
            }
            let mut history = self.history.lock();
            let wakeups = self.apply(&mut history, record, true);
            drop(history);
            wakeups.into_iter().for_each(Wakeups::wake);
        }
        self.state.advance(version(at.number()));
        self.state.compare(version(at.number()));
        self.at = Some(at);
        Ok(())
    }

    /// Adds a record to the history, and changes the presence list if the record is newer than that.
    fn apply(&self, history: &mut History, record: HubRecord, is_newer: bool) -> Vec<Wakeups> {
        match record.content {
            None => {
                self.state.report_foreign(record.id());
                Vec::new()
            }
            Some(HubContent::Update(update)) => {
                history.updates += u64::from(is_newer);
                history.record(update).into_vec()
            }
            Some(HubContent::Presence(entry, active)) => {
                let entry = Arc::new(entry);
                let events = entry.events(active, event_ids(&entry.id, record.number));
                if is_newer {
                    history.presence_list.set(&entry, active);
                }
                history.record_presence(events)
            }
        }
    }

    /// Loads the history and the presence list. Subscribers of an earlier history are disconnected: they may have missed
    /// updates, and reconnect with the id of the last one that they have.
    async fn load(&mut self) -> Result<(), NoReply> {
        // Subscriptions are read while others change them, so that later changes are applied to them.
        let begin = self.newest().await?;
        let mut subscriptions = Vec::new();
        let add = |name: &[u8], record: Bytes| {
            if name.starts_with(b"s ") {
                subscriptions.push(presence_record::read(&record));
            }
        };
        let key = &self.connection.hub[2];
        self.connection.scan(key, READ_TIMEOUT, add).await?;
        let (mut at, mut records) = (HubPosition::beginning(), Vec::new());
        while !at.includes(&begin) {
            let page = self.read(&at, None).await?;
            if page.is_empty() {
                break;
            }
            for record in page {
                let is_first = at.is_at_beginning_for(&record);
                if !at.advance(&record) && !is_first {
                    if record.number > begin.number() {
                        // Changes of the list may be missing: the load is repeated.
                        return Ok(());
                    }
                    records.retain(|it: &HubRecord| !it.is_of_stream(&record));
                }
                records.push(record);
            }
        }
        let mut history = self.history.lock();
        let wakeups = history.reset();
        let known = subscriptions.iter().flatten().count();
        if known < subscriptions.len() {
            self.state.report_foreign("a subscription");
        }
        let subscriptions = subscriptions.into_iter().flatten().map(Arc::new);
        let subscriptions: Vec<_> = subscriptions.collect();
        history.presence_list.replace(&subscriptions);
        for record in records {
            let is_newer = record.number > begin.number();
            // All subscribers are woken anyway.
            drop(self.apply(&mut history, record, is_newer));
        }
        history.is_loaded = true;
        drop(history);
        wakeups.into_iter().for_each(Wakeups::wake);
        self.state.record_load();
        self.state.advance(version(at.number()));
        self.at = Some(at);
        Ok(())
    }

    async fn read(
        &self,
        at: &HubPosition,
        block: Option<Duration>,
    ) -> Result<Vec<HubRecord>, NoReply> {
        let keys = &self.connection.hub;
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(PAGE);
        if let Some(block) = block {
            read.arg("BLOCK").arg(block.as_millis() as u64);
        }
        read.arg("STREAMS").arg(&keys[..2]).arg(&at.0[..]);
        let capacity = self.history.lock().published.capacity();
        let time_limit = READ_TIMEOUT + transfer_time(capacity);
        page(self.connection.line.request(&read, time_limit).await?, keys)
    }

    /// Reads the position of the newest entries.
    async fn newest(&self) -> Result<HubPosition, NoReply> {
        let ids = call(&self.connection, &NEWEST, Vec::new()).await?;
        let ids = <[String; 2]>::try_from(ids);
        ids.map(HubPosition).map_err(|_| NoReply::Unreadable)
    }

    /// Loads everything in the next iteration: entries after the last one applied are missing.
    fn begin_anew(&mut self) {
        self.at = None;
        tracing::warn!(
            target: TARGET,
            "push_redis lacks updates of the Mercure hub that follow those of this node: they were evicted while it was away, or Redis has lost data; subscribers are disconnected, and reconnect"
        );
    }
}
