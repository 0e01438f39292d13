//! Where responses live. Memory is the place every hit comes from; tiers lie behind it.

pub mod content;
pub mod encoding;
pub mod memory;
pub mod stored;
pub mod tier;

pub use content::{Content, FileBody};
pub use memory::{Hit, Memory, MemoryLimits, MemoryStats, Object, Refused};
pub use stored::Stored;
pub use tier::{Claim, Entry, EntryId, Got, Put, Tier, TierError, TierStats, Token};
