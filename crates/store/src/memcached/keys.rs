//! Item names.

use super::protocol::MetaRequest;
use crate::tier::{EntryId, LOG_COPIES};

/// Prefix of all records, changed with their format.
const VERSION: &str = "mc1";

/// Item with a record, or with the manifest of one.
pub(super) fn record(id: EntryId) -> String {
    format!("{VERSION}:{id}")
}

/// Lock item of a renewal.
pub(super) fn lock(id: EntryId) -> String {
    format!("{VERSION}:{id}:r")
}

/// Item with a piece of a large body.
pub(super) fn piece(id: EntryId, generation: u128, number: usize) -> String {
    format!("{VERSION}:{id}:{generation:032x}:{number}")
}

/// Names of the two copies of the purge log. They differ, since a change of the pool may turn the server of
/// the first copy into that of the second.
pub(super) const LOGS: [&str; LOG_COPIES] = ["mcl1", "mcl1b"];

/// Item with a record of the log.
pub(super) fn log_record(log: &str, position: u64) -> String {
    format!("{log}:{position}")
}

/// Removes a record and all claims on it. Pieces of a large body become unreachable and expire.
pub(super) fn remove(request: MetaRequest, id: EntryId) -> MetaRequest {
    request.delete(&record(id), None).delete(&lock(id), None)
}
