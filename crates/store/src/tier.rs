//! Storage tiers behind memory: disk, memcached, Redis.
//!
//! A tier stores opaque records under ids of fixed size. It never decides on reuse, which is up to policy.
//! An operation completes or fails within its own timeout; the caller then continues without it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::clock::Epoch;
use crate::content::Content;
pub use crate::log_position::{
    LOG_COPIES, LogPositions, count_in_log, has_read, in_log, log_number, log_of, new_log, position,
};
use crate::tier_clock::TierClock;

/// Boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Operation of a tier in progress.
pub type TierFuture<'a, T> = BoxFuture<'a, Result<T, TierError>>;

/// Id of a record, the same on every node. The head contains the full key for comparison, so a collision
/// merely makes two keys evict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(u128);

impl EntryId {
    /// Returns the id of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_128(key))
    }

    /// Returns the id of a variant of a key.
    pub fn of_variant(key: &[u8], selection: &[u8], generation: u64) -> Self {
        let mut all = Vec::with_capacity(8 + 8 + key.len() + selection.len());
        all.extend_from_slice(&generation.to_le_bytes());
        all.extend_from_slice(&(key.len() as u64).to_le_bytes());
        all.extend_from_slice(key);
        all.extend_from_slice(selection);
        Self(xxh3_128(&all))
    }

    /// Returns the bytes of the id.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Creates an id from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

/// Formats as 32 hexadecimal digits.
impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Record of a tier. For the head see [`crate::encoding`].
#[derive(Clone, Debug)]
pub struct Entry {
    /// Everything except the body, with a checksum.
    pub head: Bytes,
    /// Body.
    pub body: Content,
}

/// Result of a lookup that claims a missing entry.
#[derive(Debug)]
pub enum GetOutcome {
    /// The entry.
    Entry(Entry),
    /// No entry; carries the result of the claim.
    Missing(Claim),
}

/// Result of a claim (lease) on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Granted to the caller, which is to fetch the entry from the origin.
    Granted(Token),
    /// Held by another process.
    HeldElsewhere,
    /// Released by the process the caller waited for, since the response is not storable.
    Unstorable,
}

/// Token of a claim. A store with it fails if the claim has expired or the id was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// Outcome of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The record was stored.
    Stored,
    /// The record was not stored: the id was removed or replaced in the meantime, or the claim is gone.
    Superseded,
    /// The record exceeds a limit, or there is no room for it.
    Refused,
}

/// Page stored by an application, not by this tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationPage {
    /// Complete body.
    pub body: Bytes,
    /// Media type.
    pub content_type: String,
}

/// Reasons why an operation of a tier failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// Timeout.
    #[error("timeout")]
    Timeout,
    /// The tier is out of service after failures.
    #[error("out of service")]
    Down,
    /// The record is damaged and has been removed.
    #[error("corrupt entry: {0}")]
    Corrupt(String),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

/// Statistics of a tier. Hits, misses, errors and latency are counted by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Number of records, if known.
    pub entries: Option<u64>,
    /// Stored bytes, if known.
    pub bytes: Option<u64>,
    /// Limit of `bytes`, if configured.
    pub capacity: Option<u64>,
    /// Number of evicted records.
    pub evicted: u64,
    /// Number of rejected records.
    pub refused: u64,
    /// Number of damaged records.
    pub corrupt: u64,
    /// Reasons for restricted service, such as a full disk or an ejected server; one line each.
    pub degraded: Vec<String>,
    /// Remarks for the operator on servers and their settings, one line each.
    pub advice: Vec<String>,
    /// Foreign files that were left alone, in one line.
    pub foreign: Option<String>,
}

/// Storage tier.
///
/// Each operation is limited in time by the tier itself. Dropping a future cancels the operation; the tier
/// stays usable. Futures may be polled on any thread.
pub trait Tier: Send + Sync + fmt::Debug {
    /// Name in reports: `disk`, `memcached` or `redis`.
    fn name(&self) -> &'static str;

    /// Looks up a record.
    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>>;

    /// Stores a record, for at most `expires`. With the token of a claim, which only a shared tier grants, it
    /// releases the claim, and fails with [`PutOutcome::Superseded`] if that is no longer held.
    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome>;

    /// Replaces the head of a record, keeping its body, for at most `expires`. Fails with
    /// [`PutOutcome::Superseded`] if the record was removed or has another head than `from`. At any time
    /// either the old or the new head is valid. A claim is as for [`Self::put`], but kept after a failure.
    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome>;

    /// Removes a record and all claims on it.
    fn remove(&self, id: EntryId) -> TierFuture<'_, ()>;

    /// Returns the statistics.
    fn stats(&self) -> TierStats;
}

/// Tier of either kind.
#[derive(Clone, Debug)]
pub enum AnyTier {
    /// Used by this process only.
    Local(Arc<dyn LocalTier>),
    /// Shared with other processes.
    Shared(Arc<dyn SharedTier>),
}

impl AnyTier {
    /// Returns the reference for timestamps in its records.
    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            Self::Local(_) => Epoch::now(),
            Self::Shared(tier) if tier.is_on_this_machine() => Epoch::now(),
            Self::Shared(tier) => match tier.clock() {
                Some(clock) => clock.epoch(),
                None => Epoch::now().anywhere(),
            },
        }
    }

    /// Maximum size of a body accepted by `spool`, in bytes; 0 if unsupported.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Local(local) => local.largest(),
            Self::Shared(shared) => shared.largest(),
        }
    }

    /// Returns the operations of every tier.
    pub fn tier(&self) -> &dyn Tier {
        match self {
            Self::Local(local) => &**local,
            Self::Shared(shared) => &**shared,
        }
    }

    /// Returns the operations of a local tier, if it is one.
    pub const fn local(&self) -> Option<&Arc<dyn LocalTier>> {
        match self {
            Self::Local(local) => Some(local),
            Self::Shared(_) => None,
        }
    }

    /// Returns the operations of a shared tier, if it is one.
    pub const fn shared(&self) -> Option<&Arc<dyn SharedTier>> {
        match self {
            Self::Local(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

/// Tier shared with other processes, in which fetches are claimed so that only one process contacts the
/// origin.
pub trait SharedTier: Tier {
    /// Looks up a record, or claims a missing one. The claim lasts until it is used or released, or for
    /// `hold`.
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome>;

    /// Reads the head of a record, without a large body.
    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>>;

    /// Claims the renewal of a record. The claim lasts until it is used or released, or for `hold`.
    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim>;

    /// Uses other users and passwords from now on, given with the URLs of the same servers as before. Connections
    /// that are open go on.
    fn change_login(&self, _urls: Vec<String>) -> TierFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Waits until a claim ends that was refused, as far as the tier announces that: a wait has to be limited.
    /// `None` if it does not.
    fn claim_end(&self, _id: EntryId) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Releases a claim.
    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()>;

    /// Releases a claim because the response is not storable. Where the tier supports it, callers that wait
    /// for this very claim get [`Claim::Unstorable`]; later callers claim as usual.
    fn release_unstorable(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        self.release(id, token)
    }

    /// Maximum size of a body accepted by `spool`, in bytes; 0 if unsupported.
    fn largest(&self) -> u64 {
        0
    }

    /// Starts to write a body too large for memory under a claim, which is released at the end. `None` if
    /// too many are in progress.
    fn spool(&self, _id: EntryId, _token: Token) -> Option<Box<dyn Spool>> {
        None
    }

    /// Returns whether all processes that share the tier run on this machine.
    fn is_on_this_machine(&self) -> bool {
        false
    }

    /// Returns the clock by which ages are measured on machines whose own clock is wrong, if the tier has one.
    fn clock(&self) -> Option<&TierClock> {
        None
    }

    /// Looks up the page that an application has stored for a request. `None` if that is not configured
    /// or not supported.
    fn page(
        &self,
        _host: &[u8],
        _target: &[u8],
    ) -> Option<TierFuture<'_, Option<ApplicationPage>>> {
        None
    }

    /// Number of copies of the purge log, from 1 to [`LOG_COPIES`]. Each has its own positions, and may be
    /// lost independently of the others.
    fn log_copies(&self) -> usize {
        1
    }

    /// Appends records to a copy of the log, starting it with `beginning` if needed. After an error, they
    /// may have been appended nevertheless.
    fn append_to_log(
        &self,
        copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()>;

    /// Waits for new records in a copy of the log, as far as the tier announces them. `None` if it does not: the
    /// copy then has to be read more often.
    fn log_news(&self, _copy: usize) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Waits, while nothing is announced, for a reason to read a copy of the log at once, such as a server that is back. `None` if
    /// the tier notices none.
    fn log_wake(&self, _copy: usize) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Reads a copy of the log after a position; 0 precedes all. Since the log is bounded, the result may
    /// start later. A missing log is started with `beginning`.
    fn read_log(&self, copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage>;
}

/// Page of the purge log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct LogPage {
    /// Records with their positions, in ascending order.
    pub records: Vec<(u64, Bytes)>,
    /// `true` if no records are missing between the requested position and the first one.
    pub is_gapless: bool,
    /// `true` if there may be further records.
    pub has_more: bool,
    /// `true` if further records follow a missing one that is still awaited.
    pub is_held_up: bool,
    /// `true` if the log was unreadable and has been replaced.
    pub was_unreadable: bool,
}

/// Tier on local storage, used by this process only.
pub trait LocalTier: Tier {
    /// Looks up a verified record without blocking. `None` is not a miss: use [`Tier::get`] then.
    fn try_get(&self, id: EntryId) -> Option<Entry>;

    /// Releases the storage to another process. The tier is not used until [`Self::take_back`].
    fn give_up(&self) -> TierFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Reacquires the storage; fails if another process holds it.
    fn take_back(&self) -> Result<(), TierError> {
        Ok(())
    }

    /// Maximum size of a body, in bytes.
    fn largest(&self) -> u64;

    /// Starts to write a body too large for memory. `None` if too many are in progress.
    fn spool(&self) -> Option<Box<dyn Spool>>;

    /// Lists records after an id, ordered by id: at most `most`, or fewer to limit the time.
    fn list(&self, after: Option<EntryId>, most: usize) -> TierFuture<'_, Listing>;

    /// Removes a record if it is unchanged since it was listed. Returns whether it was.
    fn remove_listed<'a>(&'a self, seen: &'a ListEntry) -> TierFuture<'a, bool>;

    /// Reads the journal: a small file for records that must survive a restart.
    fn load_journal(&self) -> TierFuture<'_, JournalRecords>;

    /// Appends records to the journal and flushes them to disk. Fails without writing any if the journal
    /// would become too large.
    fn append_to_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()>;

    /// Replaces all records of the journal atomically.
    fn replace_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()>;
}

/// Page of the records of a tier.
#[derive(Debug)]
pub struct Listing {
    /// Records, ordered by id.
    pub entries: Vec<ListEntry>,
    /// Id after which the next page starts; `None` at the end.
    pub next: Option<EntryId>,
}

/// Head of a record.
#[derive(Clone, Debug)]
pub struct ListEntry {
    /// Id of the record.
    pub id: EntryId,
    /// Encoded head; see [`crate::encoding`].
    pub head: Bytes,
    /// Distinguishes this version of the record from its successors.
    pub version: u64,
}

/// Contents of a journal.
#[derive(Debug, PartialEq, Eq)]
pub struct JournalRecords {
    /// Records, oldest first.
    pub records: Vec<Bytes>,
    /// `true` if the file was damaged, so that later records may be missing.
    pub is_damaged: bool,
}

/// Body that is written to a tier while it is received. Dropped before [`Self::finish`], it leaves nothing
/// behind.
pub trait Spool: Send {
    /// Writes the next chunk; completes when the tier accepts another one (back-pressure).
    fn write(&mut self, chunk: Bytes) -> TierFuture<'_, ()>;

    /// Stores the body under an id, with its head. Returns the body as stored.
    fn finish(
        self: Box<Self>,
        id: EntryId,
        head: Bytes,
        expires: Duration,
    ) -> TierFuture<'static, Content>;
}
