//! Rejections by limits, counted by reason.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines the reasons with their words, so that none is missing from [`Refusal::ALL`].
macro_rules! refusals {
    ($($(#[doc = $meaning:literal])+ $name:ident = $word:literal,)+) => {
        /// Reason of a rejection: a limit that was exceeded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Refusal {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Label in metrics and logs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

refusals! {
    /// A connection above the limit of its address (`max_connections_per_address`).
    Address = "address",
    /// A connection that began with a PROXY header from an address that is not trusted to send one.
    ProxyUntrusted = "proxy-untrusted",
    /// A connection that had to begin with a PROXY header, and did not.
    ProxyMalformed = "proxy-malformed",
    /// A PROXY header that did not arrive in time (`client_head_timeout`).
    ProxyLate = "proxy-timeout",
    /// A connection whose TLS handshake failed.
    Handshake = "handshake",
    /// A TLS handshake that did not complete in time (`client_head_timeout`).
    HandshakeLate = "handshake-timeout",
    /// A request whose URL is too long (`max_target_size`).
    Target = "target",
    /// A request whose head is too large (`max_head_size`, `max_fields`).
    Head = "head",
    /// A request whose head did not come in time (`client_head_timeout`).
    HeadLate = "head-timeout",
    /// A request whose body is too large (`max_body_size`).
    Body = "body",
    /// A request whose body did not come in time (`client_body_timeout`, `client_body_rate`).
    BodyLate = "body-timeout",
    /// A tunnel or an event stream above the limit (`max_tunnels`).
    Tunnel = "tunnel",
    /// An HTTP/2 connection closed for flooding (`http2_max_resets`, and limits without an option).
    Http2 = "http2",
    /// A request above the stream limit of its HTTP/2 connection (`http2_max_streams`).
    Http2Stream = "http2-stream",
    /// A request above the rate limit of its route (`rate`).
    Rate = "rate",
    /// A prefetch that nothing stored answers (`prefetch`).
    Prefetch = "prefetch",
    /// A request of a client that the route does not admit (`allow`, `deny`).
    Access = "access",
    /// A request with a wrong password, or above the limits of their verification (`basic_auth`).
    Authentication = "authentication",
}

/// Rejection counters by reason.
pub(crate) struct RefusalCounters([AtomicU64; Refusal::ALL.len()]);

impl Default for RefusalCounters {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl RefusalCounters {
    pub(crate) fn count(&self, why: Refusal) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Count by reason.
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
        let refused = RefusalCounters::default();
        for (number, why) in Refusal::ALL.iter().enumerate() {
            (0..number).for_each(|_| refused.count(*why));
        }
        for (number, (why, count)) in refused.all().into_iter().enumerate() {
            assert_eq!((why, count), (Refusal::ALL[number], number as u64));
        }
    }
}
