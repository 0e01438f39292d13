//! Where responses live. Memory is the place every hit comes from.

pub mod memory;
pub mod stored;

pub use memory::{Hit, Memory, MemoryLimits, MemoryStats, Object, Refused};
pub use stored::{Corrupt, Stored};
