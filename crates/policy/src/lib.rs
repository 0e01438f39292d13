//! What HTTP says about caching: RFC 9111 and its relatives, as pure functions.
//!
//! Fields and the time go in, a verdict comes out. Nothing here reads a clock, does I/O, or
//! allocates on the way to a hit.

pub mod fields;
pub mod time;

pub use fields::{Fields, FieldsBuf};
pub use time::{Millis, Time};
