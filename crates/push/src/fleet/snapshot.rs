//! All documents as they are, and what is remembered of those that are gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use microcache_store::redis::{NoReply, Value, cmd, from_redis_value};

use super::reader::{PATIENCE, Reader};
use super::scripts::{self, Kind, What, number, shown};
use super::while_sent;
use crate::change::Change;
use crate::journal::{Header, Loaded};
use crate::name::Name;
use crate::numbers::Numbers;
use crate::version::Version;

/// So many documents are asked for first, and at most. What they turn out to take says how many are asked for next.
const FEW: usize = 16;
const MANY: usize = 1000;
/// So much is to come at a time, in bytes.
const PAGE_BYTES: usize = 1024 * 1024;
/// So many changes of the stream are looked at at a time.
const ENTRIES: usize = 2000;

/// What there is after a change.
pub(super) struct Snapshot {
    pub(super) at: Version,
    pub(super) changes: HashMap<Name, Change>,
    pub(super) numbers: Numbers,
    /// What was gone before this change is not known.
    forgotten_through: u64,
}

impl Snapshot {
    /// Takes one; `None` if the changes that came meanwhile are not remembered any more.
    ///
    /// Documents are read while others change them, so that what is read is of different times. All changes since the
    /// beginning are looked at then, up to the newest that was read: what is not told of a later time by then, will be.
    pub(super) async fn take(reader: &Reader) -> Result<Option<Self>, NoReply> {
        let nothing = Version {
            epoch: 0,
            number: 0,
        };
        let begin = reader.page(nothing).await?;
        let mut snapshot = Self {
            at: Version {
                epoch: begin.epoch,
                number: begin.newest,
            },
            changes: HashMap::new(),
            numbers: Numbers::default(),
            forgotten_through: 0,
        };
        snapshot.read_documents(reader, begin.now).await?;
        snapshot.read_gone(reader).await?;
        let newest = snapshot.changes.values().map(|it| it.number).max();
        let newest = newest.unwrap_or_default();
        loop {
            let page = reader.page(snapshot.at).await?;
            let What::Changes(entries) = &page.what else {
                return Ok(None);
            };
            for entry in entries {
                snapshot.at.number = entry.number;
                snapshot.numbers.note(entry.number);
                snapshot.add(reader.change(entry, page.now));
            }
            snapshot.numbers.come_to(page.through(snapshot.at.number));
            let is_over = entries.is_empty();
            if is_over || snapshot.at.number >= newest {
                return Ok(Some(snapshot));
            }
        }
    }

    fn add(&mut self, change: Option<Change>) {
        let Some(change) = change else {
            return;
        };
        match self.changes.entry(Arc::clone(&change.name)) {
            Entry::Occupied(mut known) if known.get().number < change.number => {
                known.insert(change);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(place) => {
                place.insert(change);
            }
        }
    }

    async fn read_documents(&mut self, reader: &Reader, server_now: u64) -> Result<(), NoReply> {
        let (mut cursor, mut count) = (0_u64, FEW);
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(&reader.wire.documents).arg(cursor);
            scan.arg("COUNT").arg(count);
            let patience = PATIENCE + while_sent(reader.documents.settings.max_document);
            let reply = reader.wire.line.ask(&scan, patience).await?;
            let (next, fields): (u64, Vec<Vec<u8>>) =
                from_redis_value(reply).map_err(|_| NoReply::Unreadable)?;
            let (mut bytes, mut found) = (0, 0);
            let mut fields = fields.into_iter();
            while let (Some(name), Some(record)) = (fields.next(), fields.next()) {
                found += 1;
                bytes += record.len();
                // Others are no documents.
                if name.starts_with(b"/") {
                    let entry = scripts::Entry {
                        number: 0,
                        kind: Kind::Put,
                        name: shown(&name),
                        record: record.into(),
                    };
                    self.add(reader.change(&entry, server_now));
                }
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
            let each = (bytes / found.max(1)).max(1);
            count = (PAGE_BYTES / each).clamp(1, MANY);
        }
    }

    /// What the stream remembers of documents that are gone.
    async fn read_gone(&mut self, reader: &Reader) -> Result<(), NoReply> {
        let mut from = "-".to_owned();
        loop {
            let mut range = cmd("XRANGE");
            range.arg(&reader.wire.changes).arg(&from).arg("+");
            range.arg("COUNT").arg(ENTRIES);
            let Value::Array(entries) = reader.wire.line.ask(&range, PATIENCE).await? else {
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
                let entry = scripts::Entry {
                    number: at,
                    kind: Kind::read(&kind),
                    name: shown(&name),
                    record: Bytes::new(),
                };
                if at > self.at.number {
                    continue;
                }
                self.numbers.note(at);
                if entry.kind == Kind::Gone {
                    self.add(reader.change(&entry, 0));
                }
            }
            if is_last {
                return Ok(());
            }
            from = format!("{}-0", at + 1);
        }
    }

    /// As a log would have it.
    pub(super) fn loaded(self) -> Loaded {
        let mut changes: Vec<_> = self.changes.into_values().map(Arc::new).collect();
        changes.sort_unstable_by_key(|change| change.number);
        Loaded {
            header: Header {
                epoch: self.at.epoch,
                newest: self.at.number,
                forgotten_through: self.forgotten_through,
            },
            changes,
            is_damaged: false,
        }
    }
}
