//! What was refused because a limit says so, by reason.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the reasons with their words, so that none is missing from [`Refusal::ALL`].
macro_rules! refusals {
    ($($(#[doc = $meaning:literal])+ $name:ident = $word:literal,)+) => {
        /// A limit, and what was refused for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Refusal {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The word that metrics and logs use.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

refusals! {
    /// A connection of an address that has as many as it may (`max_connections_per_address`).
    Address = "address",
    /// A connection that began with the PROXY protocol, from where nobody may use it.
    ProxyUntrusted = "proxy-untrusted",
    /// A connection from where the PROXY protocol is to be used, that began with something else.
    ProxyMalformed = "proxy-malformed",
    /// The same, whose beginning did not come in time (`client_head_timeout`).
    ProxyLate = "proxy-timeout",
    /// A connection on which no TLS session could be agreed on.
    Handshake = "handshake",
    /// The same, because that did not come to an end in time (`client_head_timeout`).
    HandshakeLate = "handshake-timeout",
    /// A request whose url is too long (`max_target_size`).
    Target = "target",
    /// A request whose head is too large (`max_head_size`, `max_fields`).
    Head = "head",
    /// A request whose head did not come in time (`client_head_timeout`).
    HeadLate = "head-timeout",
    /// A request whose body is too large (`max_body_size`).
    Body = "body",
    /// A request whose body did not come in time (`client_body_timeout`, `client_body_rate`).
    BodyLate = "body-timeout",
    /// A tunnel or an event stream for which there is no room (`max_tunnels`).
    Tunnel = "tunnel",
    /// A connection of HTTP/2 that made work for nothing (`http2_max_resets`, and bounds without a name).
    Http2 = "http2",
    /// A request beyond those that a connection of HTTP/2 may have at a time (`http2_max_streams`).
    Http2Stream = "http2-stream",
    /// A request beyond what its route lets through (`rate`).
    Rate = "rate",
}

/// How often each was.
pub(crate) struct Refused([AtomicU64; Refusal::ALL.len()]);

impl Default for Refused {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Refused {
    pub(crate) fn count(&self, why: Refusal) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each reason, and how often it was.
    pub(crate) fn all(&self) -> Vec<(Refusal, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Refusal::ALL.iter().copied().zip(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_by_itself() {
        let refused = Refused::default();
        for (number, why) in Refusal::ALL.iter().enumerate() {
            (0..number).for_each(|_| refused.count(*why));
        }
        for (number, (why, count)) in refused.all().into_iter().enumerate() {
            assert_eq!((why, count), (Refusal::ALL[number], number as u64));
        }
    }
}
