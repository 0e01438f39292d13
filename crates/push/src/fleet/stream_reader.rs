//! The reader of the stream of changes.

use std::sync::Arc;
use std::task::Waker;

use microcache_store::redis::{NoReply, Value, cmd};
use tokio::time::sleep;

use super::change_stream::{ChangeStream, overtaken};
use super::connection::{BLOCK, FleetConnection, PAUSE, READ_TIMEOUT, TARGET};
use super::scripts::{ReadResult, StreamEntry};
use super::snapshot::Snapshot;
use super::state::State;
use crate::changes::change::DocumentChange;
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;

/// The task that follows the stream.
pub(super) struct StreamReader {
    stream: ChangeStream,
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
            stream: ChangeStream {
                connection,
                documents,
                state,
            },
            at: None,
            has_checked_settings: false,
        }
    }

    /// Runs forever.
    pub(super) async fn run(mut self) {
        loop {
            match self.follow().await {
                Ok(()) => self.stream.state.record_contact(),
                Err(why) => {
                    self.stream
                        .state
                        .record_outage(&why, &self.stream.connection.line.degraded());
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn follow(&mut self) -> Result<(), NoReply> {
        let Some(at) = self.at else {
            return self.load().await;
        };
        let page = self.stream.page(at).await?;
        self.stream.state.compare(DocumentVersion {
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
            if let Some(change) = self.stream.change(entry, page.now) {
                self.apply(change);
            } else if let Some((name, number)) = overtaken(entry)
                && self.local_number(&name) < number
            {
                self.stream.documents.record_missing(&name, number);
            }
        }
        self.advance(DocumentVersion { number: last, ..at });
        if last < page.newest {
            return Ok(());
        }
        self.wait_for_more(last).await
    }

    /// Returns the number of this node's version of a document; zero if there is none.
    fn local_number(&self, name: &str) -> u64 {
        let index = self.stream.documents.index.lock();
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
        self.stream.documents.apply(&Arc::new(change));
    }

    /// Declares that these changes exist, and no others up to `through`.
    fn record_numbers(&self, entries: &[StreamEntry], through: u64) {
        let mut index = self.stream.documents.index.lock();
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
        let mut index = self.stream.documents.index.lock();
        index.newest = index.newest.max(at.number);
        let size = index.size();
        drop(index);
        self.stream
            .state
            .check_size(size, self.stream.documents.settings.memory);
        self.stream.state.advance(at);
    }

    /// Waits for the next change, up to [`BLOCK`].
    async fn wait_for_more(&self, after: u64) -> Result<(), NoReply> {
        let mut wait = cmd("XREAD");
        wait.arg("COUNT").arg(1);
        wait.arg("BLOCK").arg(BLOCK.as_millis() as u64);
        wait.arg("STREAMS").arg(&self.stream.connection.changes);
        wait.arg(format!("{after}-0"));
        self.stream
            .connection
            .line
            .request(&wait, READ_TIMEOUT)
            .await
            .map(drop)
    }

    /// Loads all documents.
    async fn load(&mut self) -> Result<(), NoReply> {
        let Some(mut snapshot) = Snapshot::load(&self.stream).await? else {
            // Too many changes were made meanwhile; the load is repeated.
            return Ok(());
        };
        let at = snapshot.at;
        let count = snapshot.documents.len();
        let extras = std::mem::take(&mut snapshot.extras);
        let diff = self
            .stream
            .documents
            .replace_all(snapshot.into_log_contents(), extras);
        self.stream.state.record_load();
        if diff.is_new_epoch && diff.documents > 0 {
            tracing::warn!(
                target: TARGET,
                "push_redis has lost its data: documents before {}, now {}; all subscribers are reset",
                diff.documents,
                self.stream.documents.index.lock().len()
            );
        } else if diff.documents > 0 {
            tracing::info!(target: TARGET, "too many changes were missed: reloaded all documents from push_redis ({count})");
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
        let reply = self
            .stream
            .connection
            .line
            .request(&get, READ_TIMEOUT)
            .await
            .ok()?;
        let Value::Array(pair) = reply else {
            return None;
        };
        match pair.get(1)? {
            Value::BulkString(value) => String::from_utf8(value.clone()).ok(),
            _ => None,
        }
    }
}
