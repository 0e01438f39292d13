//! Writes to documents, and their execution.

pub(crate) mod batch;
pub(crate) mod coming;
mod equal;
mod operations;
pub(crate) mod patch;
mod tree;
pub(crate) mod wish;
pub(crate) mod writer;
