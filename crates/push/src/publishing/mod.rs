//! What those who publish want, and what becomes of it.

pub(crate) mod batch;
pub(crate) mod coming;
mod equal;
mod operations;
pub(crate) mod patch;
mod tree;
pub(crate) mod wish;
pub(crate) mod writer;
