//! What things are called on a server.

use super::protocol::Request;
use crate::tier::{EntryId, LOG_COPIES};

/// Another way of keeping records needs another beginning.
const VERSION: &str = "mc1";

/// The item that holds a record, or the beginning of one.
pub(super) fn record(id: EntryId) -> String {
    format!("{VERSION}:{id}")
}

/// The item that is there while somebody renews a record.
pub(super) fn lock(id: EntryId) -> String {
    format!("{VERSION}:{id}:r")
}

/// A piece of a large body.
pub(super) fn piece(id: EntryId, generation: u128, number: usize) -> String {
    format!("{VERSION}:{id}:{generation:032x}:{number}")
}

/// The newest position of each copy of the log that processes share. They have names of their own: in a pool
/// that becomes another one, a server's first copy must not be taken for its second.
pub(super) const LOGS: [&str; LOG_COPIES] = ["mcl1", "mcl1b"];

/// The record at a position of a copy of the log.
pub(super) fn log_record(log: &str, position: u64) -> String {
    format!("{log}:{position}")
}

/// Removes a record and every claim on it. The pieces of a large body remain until they expire
/// or make room: nobody can find them.
pub(super) fn remove(request: Request, id: EntryId) -> Request {
    request.delete(&record(id), None).delete(&lock(id), None)
}
