//! Storage of responses: memory, which serves every hit, and the tiers behind it.

pub mod allocation;
mod announcements;
mod checksum;
pub mod clock;
pub mod content;
pub mod dir_handle;
pub mod directory;
pub mod disk;
pub mod encoding;
pub mod encodings;
pub mod eviction;
mod key_notes;
mod key_update;
mod log_position;
pub mod memcached;
pub mod memory;
pub mod ownership;
pub mod poll_clock;
pub mod random;
mod reconnection;
#[cfg(feature = "redis")]
pub mod redis;
pub mod stored;
pub mod tags;
pub mod tier;
mod tier_clock;
pub mod tiers;

pub use announcements::Announcements;
pub use clock::{Clock, Epoch};
pub use content::{Content, FileBody};
pub use directory::{Directory, DirectoryError, DirectorySettings};
pub use encoding::VaryRecord;
pub use encodings::{
    BodyEncodings, DictionaryBase, DictionaryVersion, EncodingMethod, EncodingTask,
    ResponseEncodings,
};
pub use eviction::FetchCost;
pub use key_update::KeyUpdate;
pub use memcached::{Memcached, MemcachedSettings};
pub use memory::{Hit, Key, Memory, MemoryLimits, MemoryStats, Object, Revision, TooLarge};
pub use ownership::OwnershipError;
pub use reconnection::{AttemptFailure, Reconnection};
pub use stored::Stored;
pub use tags::TagNumbers;
pub use tier::{
    AnyTier, ApplicationPage, Claim, Entry, EntryId, GetOutcome, JournalRecords, LOG_COPIES,
    ListEntry, Listing, LocalTier, LogPage, LogPositions, PutOutcome, SharedTier, Tier, TierError,
    TierStats, Token, count_in_log, has_read, in_log, log_number, log_of, new_log,
};
pub use tier_clock::TierClock;
pub use tiers::{
    BodySpool, ClaimGuard, FetchClaim, HeldClaim, Removal, TierEntry, TierLimits, TierReply,
    TierReport, Tiers,
};
