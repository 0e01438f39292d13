//! The interface: what all requests to it share.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use microcache_proxy::Handle;

use crate::access::Token;
use crate::live::Live;

pub(crate) struct Interface {
    pub(crate) handle: Handle,
    pub(crate) token: Option<Token>,
    pub(crate) started: Instant,
    /// Requests that nobody was allowed to make.
    pub(crate) refused: AtomicU64,
    /// Those who watch.
    pub(crate) live: Live,
}
