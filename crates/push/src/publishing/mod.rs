//! Writes to documents, and their execution.

pub(crate) mod batch;
mod equal;
mod operations;
pub(crate) mod patch;
mod tree;
pub(crate) mod upload;
pub(crate) mod write_error;
pub(crate) mod write_request;
pub(crate) mod writer;
