//! Subscribers: their requests, their position in the sequence of changes, and the streams sent to them.

pub(crate) mod cursor;
pub(crate) mod delivered;
pub(crate) mod page;
pub(crate) mod params;
pub(crate) mod pending_join;
pub(crate) mod stream;
pub(crate) mod subscription;
pub(crate) mod urls;
pub(crate) mod versions;
