//! What lies behind memory: a disk, a memcached pool, Redis.
//!
//! A tier keeps opaque records under fixed-size ids. It never decides what may be used: that is
//! policy's. It answers within its own deadline or fails; whoever asks goes on without it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::clock::Epoch;
use crate::content::Content;
use crate::encoding::Head;
use crate::random;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The name of a record, the same on every node. The record's head holds the full key, which is
/// compared: two keys with one id cost each other their place, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(u128);

impl EntryId {
    /// The id of a key.
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_128(key))
    }

    /// The id of one variant of a key.
    pub fn of_variant(key: &[u8], selection: &[u8], generation: u64) -> Self {
        let mut all = Vec::with_capacity(8 + 8 + key.len() + selection.len());
        all.extend_from_slice(&generation.to_le_bytes());
        all.extend_from_slice(&(key.len() as u64).to_le_bytes());
        all.extend_from_slice(key);
        all.extend_from_slice(selection);
        Self(xxh3_128(&all))
    }

    /// As bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// From bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

/// Thirty-two hexadecimal digits.
impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What a tier keeps: see [`crate::encoding`] for the head.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Everything but the body, checksummed.
    pub head: Bytes,
    /// The body.
    pub body: Content,
}

/// What a shared tier has under an id, for who would bring what is not there.
#[derive(Debug)]
pub enum Got {
    /// This.
    Entry(Entry),
    /// Nothing; and whether the caller is the one to bring it.
    Missing(Claim),
}

/// Who of all nodes that share a tier asks the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller.
    Mine(Token),
    /// Somebody else is at it.
    Theirs,
    /// The one for whom the caller waited is not any more: it cannot be stored.
    Unstorable,
}

/// The proof of a claim. What is stored with it is refused if the claim is gone: it ran out, or
/// the id was removed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u64);

/// What became of a record to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Stored,
    /// It is not stored: it was removed while this was on its way, something else has come in its
    /// place, or the claim is gone.
    Superseded,
    /// It is larger than the tier takes, or the tier is full of better things.
    Refused,
}

/// A page that is no record of ours: an application has put its body there itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The whole body.
    pub body: Bytes,
    /// What it is.
    pub content_type: String,
}

/// Why a tier did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// Not within its deadline.
    #[error("no answer in time")]
    Timeout,
    /// It is out of service for now, after failures.
    #[error("out of service after failures")]
    Down,
    /// What it holds under this id is not what was put there. The tier has removed it.
    #[error("corrupt entry: {0}")]
    Corrupt(String),
    /// Anything else: what the system or the server says.
    #[error("{0}")]
    Failed(String),
}

/// The state of a tier, for reports. Hits, misses, errors and latency are counted by whoever asks
/// the tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Records held, where the tier knows.
    pub entries: Option<u64>,
    /// Bytes held, where the tier knows.
    pub bytes: Option<u64>,
    /// The bound on `bytes`, where there is one of ours.
    pub capacity: Option<u64>,
    /// Records that had to leave for others.
    pub evicted: u64,
    /// Records it did not take.
    pub refused: u64,
    /// Records that turned out damaged.
    pub corrupt: u64,
    /// Why it is not, or not fully, in service: a full disk, an ejected server. One line each.
    pub degraded: Vec<String>,
    /// What is in the way that it has not made, and leaves alone: one line.
    pub foreign: Option<String>,
}

/// A place behind memory.
///
/// Every operation is bounded in time by the tier itself. Dropping a future gives the operation
/// up; the tier stays usable. Futures may be polled on any thread.
pub trait Tier: Send + Sync + fmt::Debug {
    /// How reports call it: `disk`, `memcached`, `redis`.
    fn name(&self) -> &'static str;

    /// What is kept under an id.
    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>>;

    /// Keeps a record, for `expires` at most.
    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>>;

    /// Puts a head in place of the one that a record has so far; its body stays where it is, for
    /// `expires` at most. Not if the record has been removed, or has another head than `from`. At any
    /// moment there is the old record or the new one.
    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>>;

    /// Forgets a record, and every claim on it.
    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>>;

    /// Its state.
    fn stats(&self) -> TierStats;
}

/// The kinds of tiers.
#[derive(Clone, Debug)]
pub enum AnyTier {
    /// This process's alone.
    Local(Arc<dyn LocalTier>),
    /// Other processes use it too.
    Shared(Arc<dyn SharedTier>),
}

impl AnyTier {
    /// How times are written for who reads its records: where that may be on another machine, as dates
    /// alone.
    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            Self::Shared(tier) if !tier.is_on_this_machine() => Epoch::now().anywhere(),
            Self::Local(_) | Self::Shared(_) => Epoch::now(),
        }
    }

    /// The largest body that it takes while it arrives; 0 if it takes none so.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Local(local) => local.largest(),
            Self::Shared(shared) => shared.largest(),
        }
    }

    /// What every tier does.
    pub fn tier(&self) -> &dyn Tier {
        match self {
            Self::Local(local) => &**local,
            Self::Shared(shared) => &**shared,
        }
    }

    /// What only one does that is this process's alone.
    pub const fn local(&self) -> Option<&Arc<dyn LocalTier>> {
        match self {
            Self::Local(local) => Some(local),
            Self::Shared(_) => None,
        }
    }

    /// What only one does that other processes use too.
    pub const fn shared(&self) -> Option<&Arc<dyn SharedTier>> {
        match self {
            Self::Local(_) => None,
            Self::Shared(shared) => Some(shared),
        }
    }
}

/// A tier that other processes use too: a fetch is worth claiming, so that one of them asks the
/// origin for all.
pub trait SharedTier: Tier {
    /// What is kept under an id. A caller who finds nothing is told whether it is the one to bring
    /// it: one caller at a time, until it stores, releases, or the time is over.
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Got, TierError>>;

    /// The head of what is kept under an id; a large body is not fetched for that.
    fn head(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Bytes>, TierError>>;

    /// Claims the renewal of what is kept under an id: one caller at a time, until it stores,
    /// releases, or the time is over.
    fn claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Claim, TierError>>;

    /// Gives a claim back without storing anything.
    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>>;

    /// The same, because it cannot be stored: a caller who waits for this very claim learns that, where the tier can
    /// tell it. Others find nothing of it.
    fn release_unstorable(
        &self,
        id: EntryId,
        token: Token,
    ) -> BoxFuture<'_, Result<(), TierError>> {
        self.release(id, token)
    }

    /// Keeps a record, for `expires` at most, if the claim still stands, and ends the claim.
    fn put_claimed(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>>;

    /// Puts a head in place of another, as [`Tier::renew`] does, if the claim still stands, and ends the
    /// claim. What is not done leaves the claim as it is.
    fn renew_claimed(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>>;

    /// The largest body that it takes while it arrives; 0 if it takes none so.
    fn largest(&self) -> u64 {
        0
    }

    /// Begins to write a body that is too large to be held in memory, and is brought with this claim: it is kept if
    /// the claim still stands then, and ends it. `None` if there are too many such now.
    fn spool(&self, _id: EntryId, _token: Token) -> Option<Box<dyn Spool>> {
        None
    }

    /// Whether all processes that share it run on this machine.
    fn is_on_this_machine(&self) -> bool {
        false
    }

    /// The page that an application keeps there itself for what a request asks. `None` if such are
    /// not looked for.
    fn page(
        &self,
        host: &[u8],
        target: &[u8],
    ) -> Option<BoxFuture<'_, Result<Option<Page>, TierError>>>;

    /// In how many copies the log lies that all processes share: 1 to [`LOG_COPIES`]. Each is a log by itself,
    /// with positions of its own, and may be lost without the others.
    fn log_copies(&self) -> usize {
        1
    }

    /// Adds records to a copy of that log, after all that is in it. Where there is none,
    /// or none any more, `beginning` comes first. What fails may have been added nevertheless.
    fn append_to_log(
        &self,
        copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<(), TierError>>;

    /// What came into a copy of it after a position; 0 is before all. The log is bounded: what is read may
    /// begin later than was asked for. Where there is none, one with this `beginning` is begun.
    fn read_log(
        &self,
        copy: usize,
        after: u64,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<LogPage, TierError>>;
}

/// How many bits of a position grow with the records of a log: enough for milliseconds since 1970. Those above them say which
/// log it is in: a number that was chosen at random when that log began.
const COUNT_BITS: u32 = 42;

/// A position before the first record of a log that begins now.
pub fn new_log() -> u64 {
    // Not 0, which stands for no log.
    log_number(random::number()).max(1) << COUNT_BITS
}

/// The position before the first record of the log that this one is in.
pub const fn log_of(position: u64) -> u64 {
    position >> COUNT_BITS << COUNT_BITS
}

/// The number of that log.
pub const fn log_number(position: u64) -> u64 {
    position >> COUNT_BITS
}

/// What grows with the records of that log, from 1 on.
pub const fn count_in_log(position: u64) -> u64 {
    position - log_of(position)
}

/// The position in the log of this number that stands at this count.
pub const fn in_log(number: u64, count: u64) -> u64 {
    number << COUNT_BITS | count
}

/// The same of numbers that somebody else has given; `None` if they are none.
pub const fn position(number: u64, count: u64) -> Option<u64> {
    let is_log = number > 0 && number <= log_number(u64::MAX);
    if is_log && count > 0 && log_number(count) == 0 {
        Some(in_log(number, count))
    } else {
        None
    }
}

/// Whether who has read up to a position has read the record at another one. Positions in different logs say nothing of
/// each other, whichever is larger.
pub const fn has_read(known: u64, place: u64) -> bool {
    log_of(known) == log_of(place) && known >= place
}

/// The copies that a log lies in at most.
pub const LOG_COPIES: usize = 2;

/// A position in each copy of the log; 0 is before all, and stands for a copy that there is not. A copy that is lost and begins
/// again is another log: see [`has_read`].
pub type LogPositions = [u64; LOG_COPIES];

/// A part of the log that processes share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct LogPage {
    /// The records and their positions, which grow.
    pub records: Vec<(u64, Bytes)>,
    /// Whether nothing is missing between the position that was asked for and the first of them.
    pub is_gapless: bool,
    /// Whether there may be more after the last of them.
    pub has_more: bool,
    /// Whether more comes after one that is not there yet.
    pub is_held_up: bool,
    /// Whether the log had something in it that cannot be read, and another one was begun for that.
    pub was_unreadable: bool,
}

/// A tier that is this process's alone and has what it keeps at home: a disk.
pub trait LocalTier: Tier {
    /// What is kept under an id, if it can be had without waiting for anything, and was checked from
    /// end to end. `None` says nothing: [`Tier::get`] knows more.
    fn try_get(&self, id: EntryId) -> Option<Entry>;

    /// Lets another process have what it keeps. Nothing is asked of it meanwhile that it does.
    fn give_up(&self) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Ok(()) })
    }

    /// Takes that back, if no other process has it.
    fn take_back(&self) -> Result<(), TierError> {
        Ok(())
    }

    /// The largest body that it takes.
    fn largest(&self) -> u64;

    /// Begins to write a body that is too large to be held in memory. `None` if there are too many
    /// such now.
    fn spool(&self) -> Option<Box<dyn Spool>>;

    /// What is kept under the ids after this one, in their order: at most so many, and perhaps fewer,
    /// so that it does not take long.
    fn list(
        &self,
        after: Option<EntryId>,
        most: usize,
    ) -> BoxFuture<'_, Result<Listing, TierError>>;

    /// Forgets a record if it is still the one that was listed; a newer one stays. Says whether it
    /// was there.
    fn remove_listed<'a>(&'a self, seen: &'a Listed) -> BoxFuture<'a, Result<bool, TierError>>;

    /// What is in the journal, which outlives the process: a small file for whoever uses the tier.
    fn load_journal(&self) -> BoxFuture<'_, Result<JournalRecords, TierError>>;

    /// Adds records to it. When this is ready, they outlive a power failure too. It fails if the
    /// journal would become too large, and then has none of them.
    fn append_to_journal(&self, records: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>>;

    /// Puts these records in place of all, or fails and leaves them.
    fn replace_journal(&self, records: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>>;
}

/// A page of what a tier keeps.
#[derive(Debug)]
pub struct Listing {
    /// The entries, in the order of their ids.
    pub entries: Vec<Listed>,
    /// After which id the next page begins; `None` at the end.
    pub next: Option<EntryId>,
}

/// What is kept under an id, without its body.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The id.
    pub id: EntryId,
    /// Everything but the body: see [`crate::encoding`].
    pub head: Bytes,
    /// Tells it from what comes in its place.
    pub version: u64,
}

impl Listed {
    /// The head of a response; `None` for what is none, or is damaged.
    pub fn response(&self) -> Option<Head> {
        let head = Head::decode(&self.head).ok();
        head.filter(Head::is_response)
    }
}

/// What a journal has.
#[derive(Debug, PartialEq, Eq)]
pub struct JournalRecords {
    /// The records, the oldest first.
    pub records: Vec<Bytes>,
    /// Whether the file was damaged, so that later records may be missing.
    pub is_damaged: bool,
}

/// A body on its way into a tier. Dropped before its end, it leaves nothing behind.
pub trait Spool: Send {
    /// Takes the next piece; ready when the one after it is welcome.
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), TierError>>;

    /// Keeps what was written under this id, with this head. Gives the body as it is kept.
    fn finish(
        self: Box<Self>,
        id: EntryId,
        head: Bytes,
        expires: Duration,
    ) -> BoxFuture<'static, Result<Content, TierError>>;
}
