//! HTTP/1.1 client: one epoll loop per thread. No async runtime, because at 100,000 requests per second its
//! overhead would exceed the server's own cost.

mod chunked;
mod connection;
mod request;
pub(super) mod response;
pub(super) mod socket;
mod worker;

pub(super) use socket::TlsEndpoint;
pub(super) use worker::{Http1Worker, connect_fault, fault};
