//! HTTP/1.1: one event loop a thread, without a runtime, because at a hundred thousand requests a second nothing else is
//! no more than what is measured.

mod chunked;
mod connection;
mod request;
pub(super) mod response;
pub(super) mod transport;
mod worker;

pub(super) use transport::TlsTo;
pub(super) use worker::{Worker, connect_fault, fault};
