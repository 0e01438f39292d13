//! HTTP/1.1 client: one event loop per thread.

mod chunked;
mod connection;
mod request;
pub(super) mod response;
mod worker;

pub(super) use worker::Http1Worker;
