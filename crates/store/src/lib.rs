//! Where responses live. Memory is the place every hit comes from; tiers lie behind it.

pub mod beneath;
pub mod clock;
pub mod content;
pub mod directory;
pub mod disk;
pub mod encoding;
pub mod encodings;
mod key_notes;
pub mod memcached;
pub mod memory;
pub mod ownership;
pub mod random;
#[cfg(feature = "redis")]
pub mod redis;
pub mod stored;
pub mod tags;
pub mod tier;
pub mod tiers;

pub use clock::{Clock, Epoch};
pub use content::{Content, FileBody};
pub use directory::{Directory, DirectoryError, DirectorySettings};
pub use encoding::Varies;
pub use encodings::{Base, Encoded, Encodings, Making, Task, Version};
pub use key_notes::Learnt;
pub use memcached::{Memcached, MemcachedSettings};
pub use memory::{Hit, Key, Memory, MemoryLimits, MemoryStats, Object, Revision, TooLarge};
pub use ownership::OwnershipError;
pub use stored::Stored;
pub use tags::TagNumbers;
pub use tier::{
    AnyTier, Claim, Entry, EntryId, Got, JournalRecords, LOG_COPIES, Listed, Listing, LocalTier,
    LogPage, LogPositions, Page, Put, SharedTier, Tier, TierError, TierStats, Token, count_in_log,
    has_read, in_log, log_number, log_of, new_log,
};
pub use tiers::{Claimed, Found, Lookup, Removal, Spooling, TierLimits, TierReport, Tiers, Turn};
