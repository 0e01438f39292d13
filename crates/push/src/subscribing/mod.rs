//! Subscribers: their requests, their position in the sequence of changes, and the streams sent to them.

pub(crate) mod asked;
pub(crate) mod joining;
pub(crate) mod page;
pub(crate) mod stream;
pub(crate) mod subscription;
pub(crate) mod told;
pub(crate) mod urls;
