//! The stream of changes in Redis, read page by page.

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Time;
use microcache_store::redis::NoReply;

use super::connection::{FleetConnection, READ_TIMEOUT, transfer_time};
use super::record;
use super::scripts::{EntryKind, READ, ReadReply, StreamEntry, epoch};
use super::state::State;
use crate::changes::change::DocumentChange;
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;
use crate::name::{DocumentName, parse_name};

/// Limits of one page: changes, and approximate bytes.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Returns the document and number of a change whose content is overtaken.
pub(super) fn overtaken(entry: &StreamEntry) -> Option<(DocumentName, u64)> {
    let name = parse_name(entry.name.as_bytes()).ok()?;
    (entry.kind == EntryKind::Overtaken).then_some((name, entry.number))
}

/// The stream, and the documents that it changes.
pub(super) struct ChangeStream {
    pub(super) connection: FleetConnection,
    pub(super) documents: Arc<Documents>,
    pub(super) state: Arc<State>,
}

impl ChangeStream {
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
        ReadReply::read(
            line.call(&READ, &keys, &arguments, self.time_limit())
                .await?,
        )
    }

    /// Returns the deadline of a read.
    pub(super) fn time_limit(&self) -> Duration {
        READ_TIMEOUT + transfer_time(self.documents.settings.max_document)
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
}
