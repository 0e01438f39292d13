//! Full loads of the shared documents, with the deletions that Redis remembers.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use microcache_store::redis::{NoReply, Value, cmd, from_redis_value};

use super::change_stream::{ChangeStream, overtaken};
use super::connection::READ_TIMEOUT;
use super::scripts::{EntryKind, ReadResult, StreamEntry, lossy_text, number};
use crate::changes::change::DocumentChange;
use crate::changes::generations::Generations;
use crate::changes::journal::{LogContents, LogHeader};
use crate::changes::version::DocumentVersion;
use crate::documents::index::SnapshotExtras;
use crate::name::{DocumentName, parse_name};

/// Stream entries per read.
const ENTRIES: usize = 2000;

/// The documents after a change.
pub(super) struct Snapshot {
    pub(super) at: DocumentVersion,
    /// The changes of each document, in order: the newest, and earlier ones if there is a history.
    pub(super) documents: HashMap<DocumentName, Vec<DocumentChange>>,
    pub(super) extras: SnapshotExtras,
    /// Deletions before this change are unknown.
    forgotten_through: u64,
}

impl Snapshot {
    /// Loads a snapshot; `None` if the changes made meanwhile are no longer in the stream.
    ///
    /// Documents are read while other nodes change them, so they are of different times. Therefore all
    /// changes made since the start are applied, up to the newest one read.
    pub(super) async fn load(stream: &ChangeStream) -> Result<Option<Self>, NoReply> {
        let nothing = DocumentVersion {
            epoch: 0,
            number: 0,
        };
        let begin = stream.page(nothing).await?;
        let mut snapshot = Self {
            at: DocumentVersion {
                epoch: begin.epoch,
                number: begin.newest,
            },
            documents: HashMap::new(),
            extras: SnapshotExtras::default(),
            forgotten_through: 0,
        };
        snapshot.read_documents(stream, begin.now).await?;
        if stream.has_history() {
            // After the documents, so that versions overtaken meanwhile are included.
            snapshot.read_history(stream, begin.now).await?;
        }
        snapshot.read_stream(stream).await?;
        let each = snapshot.documents.values();
        let newest = each.filter_map(|it| it.last()).map(|it| it.number).max();
        let newest = newest.unwrap_or_default();
        loop {
            let page = stream.page(snapshot.at).await?;
            let ReadResult::Changes(entries) = &page.result else {
                return Ok(None);
            };
            for entry in entries {
                snapshot.at.number = entry.number;
                snapshot.extras.numbers.add(entry.number);
                snapshot.add(stream.change(entry, page.now), stream);
                snapshot.extras.missing.extend(overtaken(entry));
            }
            let through = page.through(snapshot.at.number);
            let _ = snapshot.extras.numbers.advance(through);
            let is_over = entries.is_empty();
            if is_over || snapshot.at.number >= newest {
                snapshot.drop_before_missing();
                return Ok(Some(snapshot));
            }
        }
    }

    fn add(&mut self, change: Option<DocumentChange>, stream: &ChangeStream) {
        let Some(change) = change else {
            return;
        };
        let name = Arc::clone(&change.name);
        let known = self.documents.entry(name).or_default();
        if let Err(at) = known.binary_search_by_key(&change.number, |it| it.number) {
            known.insert(at, change);
        }
        if !stream.has_history() {
            known.drain(..known.len() - 1);
        }
    }

    async fn read_documents(
        &mut self,
        stream: &ChangeStream,
        server_now: u64,
    ) -> Result<(), NoReply> {
        let add = |name: &[u8], record| self.add_record(stream, (name, record), server_now);
        let connection = &stream.connection;
        let time_limit = stream.time_limit();
        connection
            .scan(&connection.documents, time_limit, add)
            .await
    }

    /// Reads the earlier versions, whose format is described in `history.lua`.
    async fn read_history(
        &mut self,
        stream: &ChangeStream,
        server_now: u64,
    ) -> Result<(), NoReply> {
        let add = |index: &[u8], record: Bytes| {
            let name = index.iter().position(|&byte| byte == b' ');
            let behind = record.iter().position(|&byte| byte == b'\n');
            if let (Some(name), Some(behind)) = (name, behind) {
                let record = record.slice(behind + 1..);
                self.add_record(stream, (&index[name + 1..], record), server_now);
            }
        };
        let connection = &stream.connection;
        let time_limit = stream.time_limit();
        connection.scan(&connection.history, time_limit, add).await
    }

    fn add_record(
        &mut self,
        stream: &ChangeStream,
        (name, record): (&[u8], Bytes),
        server_now: u64,
    ) {
        // Other fields are not documents.
        if name.starts_with(b"/") {
            let entry = StreamEntry {
                number: 0,
                kind: EntryKind::Put,
                name: lossy_text(name),
                record,
            };
            self.add(stream.change(&entry, server_now), stream);
        }
    }

    /// Reads the stream: the deletions, and the versions that existed.
    async fn read_stream(&mut self, stream: &ChangeStream) -> Result<(), NoReply> {
        let mut from = "-".to_owned();
        loop {
            let mut range = cmd("XRANGE");
            range.arg(&stream.connection.changes).arg(&from).arg("+");
            range.arg("COUNT").arg(ENTRIES);
            let Value::Array(entries) =
                stream.connection.line.request(&range, READ_TIMEOUT).await?
            else {
                return Err(NoReply::Unreadable);
            };
            let is_last = entries.len() < ENTRIES;
            let mut at = 0;
            for entry in entries {
                let (id, [kind, name]): (String, [Vec<u8>; 2]) =
                    from_redis_value(entry).map_err(|_| NoReply::Unreadable)?;
                let id = id.strip_suffix("-0").ok_or(NoReply::Unreadable)?;
                at = number(id)?;
                if from == "-" {
                    self.forgotten_through = at - 1;
                    from.clear();
                }
                let entry = StreamEntry {
                    number: at,
                    kind: EntryKind::read(&kind),
                    name: lossy_text(&name),
                    record: Bytes::new(),
                };
                if at > self.at.number {
                    continue;
                }
                self.extras.numbers.add(at);
                match entry.kind {
                    EntryKind::Deleted => self.add(stream.change(&entry, 0), stream),
                    EntryKind::Put if stream.has_history() => self.record_missing_version(&entry),
                    EntryKind::Put | EntryKind::Overtaken | EntryKind::Foreign => {}
                }
            }
            if is_last {
                return Ok(());
            }
            from = format!("{}-0", at + 1);
        }
    }

    fn record_missing_version(&mut self, entry: &StreamEntry) {
        let Ok(name) = parse_name(entry.name.as_bytes()) else {
            return;
        };
        let known = self.documents.get(&name).map_or(&[][..], Vec::as_slice);
        let index = known.binary_search_by_key(&entry.number, |it| it.number);
        if index.is_err() {
            self.extras.missing.insert(name, entry.number);
        }
    }

    /// Drops versions before a missing change, so that each history is contiguous.
    fn drop_before_missing(&mut self) {
        for (name, number) in &self.extras.missing {
            if let Some(known) = self.documents.get_mut(name) {
                let later = known.partition_point(|it| it.number < *number);
                known.drain(..later.min(known.len() - 1));
            }
        }
    }

    /// Converts to the contents of a log.
    pub(super) fn into_log_contents(self) -> LogContents {
        let changes = self.documents.into_values().flatten();
        let mut changes: Vec<_> = changes.map(Arc::new).collect();
        changes.sort_unstable_by_key(|change| change.number);
        LogContents {
            header: LogHeader {
                generations: Generations::new(self.at.epoch),
                newest: self.at.number,
                forgotten_through: self.forgotten_through,
            },
            changes,
            is_damaged: false,
        }
    }
}
