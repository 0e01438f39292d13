//! The reader of the stream of changes.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use microcache_policy::Time;
use microcache_store::redis::{NoReply, Value, cmd};
use tokio::time::sleep;

use super::connection::{FleetConnection, TARGET, transfer_time};
use super::scripts::{EntryKind, READ, ReadReply, ReadResult, StreamEntry, epoch};
use super::snapshot::Snapshot;
use super::state::State;
use crate::changes::change::DocumentChange;
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;
use crate::fleet::record;
use crate::name::{DocumentName, parse_name};

/// Time for which Redis blocks a read if nothing changes (`XREAD BLOCK`).
const BLOCK: Duration = Duration::from_secs(1);
/// Deadline of such a read.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// Limits of one page: changes, and approximate bytes.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Returns the document and number of a change whose content is overtaken.
pub(super) fn overtaken(entry: &StreamEntry) -> Option<(DocumentName, u64)> {
    let name = parse_name(entry.name.as_bytes()).ok()?;
    (entry.kind == EntryKind::Overtaken).then_some((name, entry.number))
}

/// The task that follows the stream.
pub(super) struct StreamReader {
    pub(super) connection: FleetConnection,
    pub(super) documents: Arc<Documents>,
    state: Arc<State>,
    /// The last change applied; `None` before the documents are loaded.
    at: Option<DocumentVersion>,
    has_checked_settings: bool,
}

impl StreamReader {
    pub(super) const fn new(
        connection: FleetConnection,
        documents: Arc<Documents>,
        state: Arc<State>,
    ) -> Self {
        Self {
            connection,
            documents,
            state,
            at: None,
            has_checked_settings: false,
        }
    }

    /// Runs forever.
    pub(super) async fn run(mut self) {
        loop {
            match self.follow().await {
                Ok(()) => self.state.record_contact(),
                Err(why) => {
                    self.state
                        .record_outage(&why, &self.connection.line.degraded());
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> Result<(), NoReply> {
        let Some(at) = self.at else {
            return self.load().await;
        };
        let page = self.page(at).await?;
        self.state.compare(DocumentVersion {
            epoch: page.epoch,
            number: page.newest,
        });
        let ReadResult::Changes(entries) = &page.result else {
            // The next iteration loads everything.
            self.at = None;
            return Ok(());
        };
        let last = entries.last().map_or(at.number, |entry| entry.number);
        // First, so that subscribers with a lost change are reset before they receive anything else.
        self.record_numbers(entries, page.through(last));
        for entry in entries {
            if let Some(change) = self.change(entry, page.now) {
                self.apply(change);
            } else if let Some((name, number)) = overtaken(entry)
                && self.local_number(&name) < number
            {
                self.documents.record_missing(&name, number);
            }
        }
        self.advance(DocumentVersion { number: last, ..at });
        if last < page.newest {
            return Ok(());
        }
        self.wait_for_more(last).await
    }

    /// Reads the changes after a version.
    pub(super) async fn page(&self, at: DocumentVersion) -> Result<ReadReply, NoReply> {
        let arguments = [
            epoch(microcache_store::random::number()),
            epoch(at.epoch),
            at.number.to_string(),
            PAGE.to_string(),
            PAGE_BYTES.to_string(),
            if self.has_history() { "all" } else { "" }.to_owned(),
        ];
        let (line, keys) = (&self.connection.line, self.connection.keys());
        let patience = PATIENCE + transfer_time(self.documents.settings.max_document);
        ReadReply::read(line.call(&READ, &keys, &arguments, patience).await?)
    }

    /// Converts a stream entry to a change; `None` if it is none. Foreign entries are reported once.
    pub(super) fn change(&self, entry: &StreamEntry, server_now: u64) -> Option<DocumentChange> {
        let change = match (entry.kind, parse_name(entry.name.as_bytes())) {
            (EntryKind::Foreign | EntryKind::Overtaken, _) => return None,
            (EntryKind::Deleted, Ok(name)) => Some(DocumentChange {
                number: entry.number,
                name,
                content: None,
                expires: None,
                delta: None,
            }),
            (EntryKind::Put, Ok(name)) => {
                // Clocks may differ, so the remaining lifetime counts.
                let now = self.documents.clock.now().as_millis();
                let here = |at: u64| {
                    let here = now.saturating_add(at).saturating_sub(server_now);
                    Time::from_millis(here.max(1))
                };
                record::decode(name, &entry.record, here)
            }
            (_, Err(_)) => None,
        };
        if change.is_none() {
            self.state.report_foreign(&entry.name);
        }
        change
    }

    pub(super) fn has_history(&self) -> bool {
        self.documents.index.lock().has_history()
    }

    /// Returns the number of this node's version of a document; zero if there is none.
    fn local_number(&self, name: &str) -> u64 {
        let index = self.documents.index.lock();
        let local_number = index.document(name).and_then(|it| it.current());
        local_number.map_or(0, |it| it.number)
    }

    fn apply(&self, mut change: DocumentChange) {
        let local_number = self.local_number(&change.name);
        if local_number >= change.number {
            return;
        }
        // The delta is useless here if a version between the two was skipped.
        change.delta = change.delta.filter(|delta| delta.from == local_number);
        self.documents.apply(&Arc::new(change));
    }

    /// Declares that these changes exist, and no others up to `through`.
    fn record_numbers(&self, entries: &[StreamEntry], through: u64) {
        let mut index = self.documents.index.lock();
        for entry in entries {
            index.numbers.add(entry.number);
        }
        let wakeups = index.numbers.advance(through);
        drop(index);
        wakeups.into_iter().for_each(Waker::wake);
    }

    /// Advances to a version: everything up to it is applied.
    fn advance(&mut self, at: DocumentVersion) {
        self.at = Some(at);
        let mut index = self.documents.index.lock();
        index.newest = index.newest.max(at.number);
        let size = index.size();
        drop(index);
        self.state.check_size(size, self.documents.settings.memory);
        self.state.advance(at);
    }

    /// Waits for the next change, up to [`BLOCK`].
    async fn wait_for_more(&self, after: u64) -> Result<(), NoReply> {
        let mut wait = cmd("XREAD");
        wait.arg("COUNT").arg(1);
        wait.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        wait.arg("STREAMS").arg(&self.connection.changes);
        wait.arg(format!("{after}-0"));
        self.connection
            .line
            .request(&wait, PATIENCE)
            .await
            .map(drop)
    }

    /// Loads all documents.
    async fn load(&mut self) -> Result<(), NoReply> {
        let Some(mut snapshot) = Snapshot::load(self).await? else {
            // Too many changes were made meanwhile; the load is repeated.
            return Ok(());
        };
        let at = snapshot.at;
        let count = snapshot.documents.len();
        let extras = std::mem::take(&mut snapshot.extras);
        let diff = self
            .documents
            .replace_all(snapshot.into_log_contents(), extras);
        self.state.record_load();
        if diff.is_new_epoch && diff.documents > 0 {
            tracing::warn!(
                target: TARGET,
                "push_redis has lost its data: there were {} documents here, there are {} now, and all subscribers are reset",
                diff.documents,
                self.documents.index.lock().len()
            );
        } else if diff.documents > 0 {
            tracing::info!(target: TARGET, "too many changes were missed: reloaded {count} documents from push_redis");
        }
        self.advance(at);
        if !self.has_checked_settings {
            self.has_checked_settings = true;
            self.check_settings().await;
        }
        Ok(())
    }

    /// Warns about Redis settings that may lose documents, if `CONFIG GET` is permitted.
    async fn check_settings(&self) {
        let policy = self.setting("maxmemory-policy").await;
        if let Some(policy) = policy.filter(|it| it.starts_with("allkeys-")) {
            tracing::warn!(
                target: TARGET,
                "push_redis has maxmemory-policy {policy}: it may evict all documents when its memory is full; set noeviction"
            );
        }
        let appends = self.setting("appendonly").await;
        let saves = self.setting("save").await;
        if appends.as_deref() == Some("no") && saves.as_deref() == Some("") {
            tracing::warn!(
                target: TARGET,
                "push_redis does not persist documents (appendonly no, save \"\"): they are lost when it restarts"
            );
        }
    }

    async fn setting(&self, name: &str) -> Option<String> {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg(name);
        let reply = self.connection.line.request(&get, PATIENCE).await.ok()?;
        let Value::Array(pair) = reply else {
            return None;
        };
        match pair.get(1)? {
            Value::BulkString(value) => String::from_utf8(value.clone()).ok(),
            _ => None,
        }
    }
}
