//! Those who are told: what they ask for, and what they are sent.

pub(crate) mod asked;
pub(crate) mod joining;
pub(crate) mod page;
pub(crate) mod stream;
pub(crate) mod subscription;
pub(crate) mod told;
pub(crate) mod urls;
