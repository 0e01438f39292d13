//! The reader of the stream of changes.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use microcache_policy::Time;
use microcache_store::redis::{NoReply, Value, cmd};
use tokio::time::sleep;

use super::scripts::{Entry, Kind, Page, READ, What, epoch};
use super::snapshot::Snapshot;
use super::state::State;
use super::{TARGET, Wire, while_sent};
use crate::changes::change::Change;
use crate::changes::version::Version;
use crate::documents::Documents;
use crate::fleet::record;
use crate::name::{Name, name};

/// Time for which Redis blocks a read if nothing changes (`XREAD BLOCK`).
const HELD: Duration = Duration::from_secs(1);
/// Deadline of such a read.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
/// Limits of one page: changes, and approximate bytes.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Returns the document and number of a change whose content is overtaken.
pub(super) fn missing(entry: &Entry) -> Option<(Name, u64)> {
    let name = name(entry.name.as_bytes()).ok()?;
    (entry.kind == Kind::Overtaken).then_some((name, entry.number))
}

/// The task that follows the stream.
pub(super) struct Reader {
    pub(super) wire: Wire,
    pub(super) documents: Arc<Documents>,
    state: Arc<State>,
    /// The last change applied; `None` before the documents are loaded.
    at: Option<Version>,
    has_looked_at_settings: bool,
}

impl Reader {
    pub(super) const fn new(wire: Wire, documents: Arc<Documents>, state: Arc<State>) -> Self {
        Self {
            wire,
            documents,
            state,
            at: None,
            has_looked_at_settings: false,
        }
    }

    /// Runs forever.
    pub(super) async fn run(mut self) {
        loop {
            match self.go_on().await {
                Ok(()) => self.state.heard(),
                Err(why) => {
                    self.state.lost(&why, &self.wire.line.degraded());
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn go_on(&mut self) -> Result<(), NoReply> {
        let Some(at) = self.at else {
            return self.load().await;
        };
        let page = self.page(at).await?;
        self.state.compare(Version {
            epoch: page.epoch,
            number: page.newest,
        });
        let What::Changes(entries) = &page.what else {
            // The next iteration loads everything.
            self.at = None;
            return Ok(());
        };
        let last = entries.last().map_or(at.number, |entry| entry.number);
        // First, so that subscribers with a lost change are reset before they receive anything else.
        self.note_numbers(entries, page.through(last));
        for entry in entries {
            if let Some(change) = self.change(entry, page.now) {
                self.note(change);
            } else if let Some((name, number)) = missing(entry)
                && self.known(&name) < number
            {
                self.documents.note_missing(&name, number);
            }
        }
        self.come_to(Version { number: last, ..at });
        if last < page.newest {
            return Ok(());
        }
        self.wait_for_more(last).await
    }

    /// Reads the changes after a version.
    pub(super) async fn page(&self, at: Version) -> Result<Page, NoReply> {
        let arguments = [
            epoch(microcache_store::random::number()),
            epoch(at.epoch),
            at.number.to_string(),
            PAGE.to_string(),
            PAGE_BYTES.to_string(),
            if self.has_history() { "all" } else { "" }.to_owned(),
        ];
        let (line, keys) = (&self.wire.line, self.wire.keys());
        let patience = PATIENCE + while_sent(self.documents.settings.max_document);
        Page::read(line.call(&READ, &keys, &arguments, patience).await?)
    }

    /// Converts a stream entry to a change; `None` if it is none. Foreign entries are reported once.
    pub(super) fn change(&self, entry: &Entry, server_now: u64) -> Option<Change> {
        let change = match (entry.kind, name(entry.name.as_bytes())) {
            (Kind::Nothing | Kind::Overtaken, _) => return None,
            (Kind::Gone, Ok(name)) => Some(Change {
                number: entry.number,
                name,
                content: None,
                expires: None,
                delta: None,
            }),
            (Kind::Put, Ok(name)) => {
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
            self.state.note_foreign(&entry.name);
        }
        change
    }

    pub(super) fn has_history(&self) -> bool {
        self.documents.books.lock().has_history()
    }

    /// Returns the number of this node's version of a document; zero if there is none.
    fn known(&self, name: &str) -> u64 {
        let books = self.documents.books.lock();
        let known = books.document(name).and_then(|it| it.now());
        known.map_or(0, |it| it.number)
    }

    fn note(&self, mut change: Change) {
        let known = self.known(&change.name);
        if known >= change.number {
            return;
        }
        // The delta is useless here if a version between the two was skipped.
        change.delta = change.delta.filter(|delta| delta.from == known);
        self.documents.note(&Arc::new(change));
    }

    /// Declares that these changes exist, and no others up to `through`.
    fn note_numbers(&self, entries: &[Entry], through: u64) {
        let mut books = self.documents.books.lock();
        for entry in entries {
            books.numbers.note(entry.number);
        }
        let woken = books.numbers.come_to(through);
        drop(books);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Advances to a version: everything up to it is applied.
    fn come_to(&mut self, at: Version) {
        self.at = Some(at);
        let mut books = self.documents.books.lock();
        books.newest = books.newest.max(at.number);
        let size = books.size();
        drop(books);
        self.state.note_size(size, self.documents.settings.memory);
        self.state.see(at);
    }

    /// Waits for the next change, up to [`BLOCK`].
    async fn wait_for_more(&self, after: u64) -> Result<(), NoReply> {
        let mut wait = cmd("XREAD");
        wait.arg("COUNT").arg(1);
        wait.arg("BLOCK").arg(HELD.as_millis() as u64);
        wait.arg("STREAMS").arg(&self.wire.changes);
        wait.arg(format!("{after}-0"));
        self.wire.line.ask(&wait, PATIENCE).await.map(drop)
    }

    /// Loads all documents.
    async fn load(&mut self) -> Result<(), NoReply> {
        let Some(mut snapshot) = Snapshot::take(self).await? else {
            // Too many changes were made meanwhile; the load is repeated.
            return Ok(());
        };
        let at = snapshot.at;
        let count = snapshot.documents.len();
        let beside = std::mem::take(&mut snapshot.beside);
        let was = self.documents.take_over(snapshot.loaded(), beside);
        self.state.loaded();
        if was.is_another_life && was.documents > 0 {
            tracing::warn!(
                target: TARGET,
                "push_redis has lost what it had, or has begun anew: there were {} documents here, there are {} now, and all subscribers begin anew",
                was.documents,
                self.documents.books.lock().len()
            );
        } else if was.documents > 0 {
            tracing::info!(target: TARGET, "too many changes were missed: {count} documents were taken up from push_redis");
        }
        self.come_to(at);
        if !self.has_looked_at_settings {
            self.has_looked_at_settings = true;
            self.look_at_settings().await;
        }
        Ok(())
    }

    /// Warns about Redis settings that may lose documents, if `CONFIG GET` is permitted.
    async fn look_at_settings(&self) {
        let policy = self.setting("maxmemory-policy").await;
        if let Some(policy) = policy.filter(|it| it.starts_with("allkeys-")) {
            tracing::warn!(
                target: TARGET,
                "push_redis has maxmemory-policy {policy}: it may throw away all documents at once when its memory is full; set noeviction"
            );
        }
        let appends = self.setting("appendonly").await;
        let saves = self.setting("save").await;
        if appends.as_deref() == Some("no") && saves.as_deref() == Some("") {
            tracing::warn!(
                target: TARGET,
                "push_redis keeps documents in its memory only (appendonly no, save \"\"): when it is restarted, they are gone"
            );
        }
    }

    async fn setting(&self, name: &str) -> Option<String> {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg(name);
        let reply = self.wire.line.ask(&get, PATIENCE).await.ok()?;
        let Value::Array(pair) = reply else {
            return None;
        };
        match pair.get(1)? {
            Value::BulkString(value) => String::from_utf8(value.clone()).ok(),
            _ => None,
        }
    }
}
