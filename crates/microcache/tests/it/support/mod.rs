//! A scripted origin, the real proxy and a raw client: a test reads like the conversation it is about.
//!
//! Nothing here understands caching. The origin sends exactly its script, the client sends exactly the given
//! bytes, and both parse strictly what they receive.

mod browser;
mod client;
mod date;
mod events;
mod gate;
pub(crate) mod http2;
mod origin;
mod proxy;
mod reply;
mod tls;
pub(crate) mod websocket;
mod wire;

pub(crate) use browser::{Browser, browser_turn};
pub(crate) use client::{Client, Response};
pub(crate) use date::{asctime, http_date, rfc850_date};
pub(crate) use events::Events;
pub(crate) use gate::Gate;
pub(crate) use microcache_testkit::{
    Folder, Process, Signal, TierKind, TierServer, WAIT_TIMEOUT, eventually, free_port,
    has_python_module, is_installed, left_out, listen, noise, signal,
};
pub(crate) use origin::{ANY, Origin, Seen};
pub(crate) use proxy::{Proxy, config_file, request};
pub(crate) use reply::Reply;
pub(crate) use tls::{CertificateFile, trusting};
