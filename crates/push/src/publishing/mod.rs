//! What those who publish want, and what becomes of it.

pub(crate) mod batch;
pub(crate) mod coming;
pub(crate) mod patch;
pub(crate) mod wish;
pub(crate) mod writer;
