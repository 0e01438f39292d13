//! What things are called on a server.

use super::protocol::Request;
use crate::tier::EntryId;

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

/// The newest position of the log that processes share.
pub(super) const LOG: &str = "mcl1";

/// The record at a position of the log.
pub(super) fn log_record(position: u64) -> String {
    format!("{LOG}:{position}")
}

/// Removes a record and every claim on it. The pieces of a large body remain until they expire
/// or make room: nobody can find them.
pub(super) fn remove(request: Request, id: EntryId) -> Request {
    request.delete(&record(id), None).delete(&lock(id), None)
}
