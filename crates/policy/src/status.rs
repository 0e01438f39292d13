//! The `Cache-Status` field (RFC 9211).

use crate::coding::SentCoding;
use crate::detail::Detail;

/// The name of this cache in the field.
const NAME: &[u8] = b"microcache";
/// The largest Integer of a structured field (RFC 9651 §3.3.1).
const MAX_INTEGER: i64 = 999_999_999_999_999;

/// The reason that a request was forwarded (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache was configured not to handle it.
    Bypass,
    /// The semantics of its method require forwarding.
    Method,
    /// No response is stored for the url.
    UriMiss,
    /// Responses are stored for the url, but none is selected (`Vary`).
    VaryMiss,
    /// No response is stored, for one of the two reasons above.
    Miss,
    /// A fresh response is stored, but the request's directives do not allow it.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is partial and lacks the requested range.
    Partial,
}

impl Forward {
    /// The token in the field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// A member of `Cache-Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a response is or not"
)]
pub struct CacheStatus {
    /// Served from the cache without forwarding.
    pub hit: bool,
    /// The reason for forwarding. It is not written for a hit: the two exclude each other.
    pub fwd: Option<Forward>,
    /// The status of the origin's response.
    pub fwd_status: Option<u16>,
    /// Remaining freshness in seconds; negative if stale. It is written for hits only.
    pub ttl: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request was coalesced with others.
    pub collapsed: bool,
    /// Further detail.
    pub detail: Option<Detail>,
    /// The coding in which this cache sends the response. It is not written, since `Content-Encoding` has it.
    pub coding: Option<SentCoding>,
    /// The field is not sent to the client.
    pub is_hidden: bool,
}

impl CacheStatus {
    /// The remaining freshness of a hit if the member has nothing else, as that of nearly every hit.
    #[inline]
    pub fn ttl_of_plain_hit(&self) -> Option<i64> {
        let is_plain = self.hit
            && self.fwd_status.is_none()
            && self.detail.is_none()
            && !(self.stored || self.collapsed || self.is_hidden);
        self.ttl.filter(|_| is_plain)
    }

    /// Appends the member to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(NAME);
        if self.hit {
            out.extend_from_slice(b"; hit");
        } else if let Some(fwd) = self.fwd {
            out.extend_from_slice(b"; fwd=");
            out.extend_from_slice(fwd.as_str().as_bytes());
        }
        if let Some(status) = self.fwd_status {
            write_number(out, "; fwd-status=", i64::from(status));
        }
        if let Some(ttl) = self.ttl.filter(|_| self.hit) {
            write_number(out, "; ttl=", ttl);
        }
        if self.stored {
            out.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            out.extend_from_slice(detail.as_str().as_bytes());
        }
    }
}

fn write_number(out: &mut Vec<u8>, parameter: &str, number: i64) {
    let number = number.clamp(-MAX_INTEGER, MAX_INTEGER);
    out.extend_from_slice(parameter.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: CacheStatus, expected: &str) {
        let mut out = Vec::new();
        status.write(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn a_member_describes_the_handling() {
        let none = CacheStatus::default();
        check(none, "microcache");
        check(
            CacheStatus {
                hit: true,
                ttl: Some(1),
                ..none
            },
            "microcache; hit; ttl=1",
        );
        check(
            CacheStatus {
                hit: true,
                ttl: Some(-3),
                detail: Some(Detail::OriginSlow),
                ..none
            },
            "microcache; hit; ttl=-3; detail=origin-slow",
        );
        check(
            CacheStatus {
                fwd: Some(Forward::UriMiss),
                fwd_status: Some(200),
                stored: true,
                collapsed: true,
                ..none
            },
            "microcache; fwd=uri-miss; fwd-status=200; stored; collapsed",
        );
        check(
            CacheStatus {
                hit: true,
                fwd: Some(Forward::Stale),
                ..none
            },
            "microcache; hit",
        );
    }

    #[test]
    fn a_plain_hit_has_a_ttl_alone() {
        let plain = CacheStatus {
            hit: true,
            ttl: Some(7),
            ..CacheStatus::default()
        };
        assert_eq!(plain.ttl_of_plain_hit(), Some(7));
        let text = |status: CacheStatus| {
            let mut out = Vec::new();
            status.write(&mut out);
            out
        };
        for (differs, is_plain) in [
            (
                CacheStatus {
                    hit: false,
                    ..plain
                },
                false,
            ),
            (CacheStatus { ttl: None, ..plain }, false),
            (
                CacheStatus {
                    fwd_status: Some(304),
                    ..plain
                },
                false,
            ),
            (
                CacheStatus {
                    stored: true,
                    ..plain
                },
                false,
            ),
            (
                CacheStatus {
                    collapsed: true,
                    ..plain
                },
                false,
            ),
            (
                CacheStatus {
                    detail: Some(Detail::OriginSlow),
                    ..plain
                },
                false,
            ),
            (
                CacheStatus {
                    fwd: Some(Forward::Stale),
                    ..plain
                },
                true,
            ),
            (
                CacheStatus {
                    coding: Some(SentCoding::ALL[0]),
                    ..plain
                },
                true,
            ),
        ] {
            assert_eq!(differs.ttl_of_plain_hit(), is_plain.then_some(7));
            assert_eq!(text(differs) == text(plain), is_plain);
        }
        let is_hidden = true;
        assert_eq!(CacheStatus { is_hidden, ..plain }.ttl_of_plain_hit(), None);
    }

    #[test]
    fn a_ttl_beyond_the_range_of_a_field_is_its_maximum() {
        let status = CacheStatus {
            hit: true,
            ttl: Some(i64::MIN),
            ..CacheStatus::default()
        };
        check(status, "microcache; hit; ttl=-999999999999999");
    }
}
