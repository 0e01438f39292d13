//! The set-ups that are shown, and what was published about their like.

use std::net::{Ipv4Addr, SocketAddr};

/// What stands between the connections and the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// Nothing.
    Alone,
    /// A cache that keeps a page for a second and knows nothing else.
    Plain,
    /// The cache as it is without any flag.
    Default,
}

/// What the report of a measurement says, <https://blog.nginx.org/blog/benefits-of-microcaching-nginx>:
/// 30 s with ten connections, on other machines.
pub(super) struct Published {
    pub(super) rate: f64,
    pub(super) stdev_millis: Option<u64>,
    pub(super) max_millis: Option<u64>,
    pub(super) origin_requests: Option<u64>,
}

impl Setup {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Plain, Self::Default];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "no cache",
            Self::Plain => "plain 1 s cache",
            Self::Default => "Microcache",
        }
    }

    /// The flags of the cache, if there is one.
    pub(super) fn flags(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Alone => None,
            Self::Plain => Some(&[
                "--ttl",
                "1s",
                "--stale-while-revalidate",
                "0s",
                "--collapse",
                "false",
            ]),
            Self::Default => Some(&[]),
        }
    }

    /// Only the last one has the address that was asked for: two caches cannot have it.
    pub(super) fn listens_on(self, wanted: SocketAddr) -> SocketAddr {
        match self {
            Self::Default => wanted,
            Self::Alone | Self::Plain => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    pub(super) fn published(self) -> Published {
        match self {
            Self::Alone => Published {
                rate: 5.5,
                stdev_millis: None,
                max_millis: None,
                origin_requests: None,
            },
            Self::Plain => Published {
                rate: 600.0,
                stdev_millis: Some(141),
                max_millis: None,
                origin_requests: Some(150),
            },
            Self::Default => Published {
                rate: 2185.0,
                stdev_millis: Some(8),
                max_millis: Some(661),
                origin_requests: Some(16),
            },
        }
    }
}
