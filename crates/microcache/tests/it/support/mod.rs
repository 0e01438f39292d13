//! A scripted origin, the real proxy and a raw client: a test reads like the conversation it is about.
//!
//! Nothing here understands caching. The origin says exactly what it is told to say, the client
//! sends exactly what it is told to send, and what either of them receives is taken apart strictly.

mod browser;
mod client;
mod date;
mod events;
mod gate;
pub(crate) mod http2;
mod left_out;
mod origin;
mod proxy;
mod reply;
mod tls;
pub(crate) mod websocket;
mod wire;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use browser::Browser;
pub(crate) use client::{Client, Response};
pub(crate) use date::{asctime, http_date, rfc850_date};
pub(crate) use events::Events;
pub(crate) use gate::Gate;
pub(crate) use left_out::left_out;
pub(crate) use origin::{ANY, Origin, Seen};
pub(crate) use proxy::{Proxy, config_file, request, until_frozen};
pub(crate) use reply::Reply;
pub(crate) use tls::{CertificateFile, trusting};

/// How long anything may take before the test fails. Far longer than anything should take on a busy
/// machine, and shorter than the minute after which the proxy gives an origin up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a state that no event announces, and fails the test when it never comes.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
