//! The three set-ups and the published figures for comparable ones.

use std::net::{Ipv4Addr, SocketAddr};

/// Layer between the connections and the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// No cache.
    Alone,
    /// Cache with a fixed TTL of 1 s, without stale responses or request coalescing.
    Plain,
    /// Microcache with its default settings.
    Default,
}

/// Published figures of a comparable set-up, measured for 30 s with ten connections on other machines:
/// <https://blog.nginx.org/blog/benefits-of-microcaching-nginx>.
pub(super) struct PublishedFigures {
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

    /// Command-line flags of the cache; `None` without a cache.
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

    /// Listen address of the cache. Only the last set-up uses the configured one, since an earlier process
    /// may still hold it.
    pub(super) fn listens_on(self, wanted: SocketAddr) -> SocketAddr {
        match self {
            Self::Default => wanted,
            Self::Alone | Self::Plain => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    pub(super) fn published(self) -> PublishedFigures {
        match self {
            Self::Alone => PublishedFigures {
                rate: 5.5,
                stdev_millis: None,
                max_millis: None,
                origin_requests: None,
            },
            Self::Plain => PublishedFigures {
                rate: 600.0,
                stdev_millis: Some(141),
                max_millis: None,
                origin_requests: Some(150),
            },
            Self::Default => PublishedFigures {
                rate: 2185.0,
                stdev_millis: Some(8),
                max_millis: Some(661),
                origin_requests: Some(16),
            },
        }
    }
}
