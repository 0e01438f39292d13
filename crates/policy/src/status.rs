//! The `Cache-Status` field (RFC 9211): what the cache did for this response, and why.

use crate::compression::SentCoding;
use crate::detail::Detail;

/// The name under which this cache reports.
const NAME: &[u8] = b"microcache";
/// The largest integer a structured field can hold (RFC 9651 §3.3.1).
const MAX_INTEGER: i64 = 999_999_999_999_999;

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The cache was not to handle it.
    Bypass,
    /// Its method must be forwarded.
    Method,
    /// Nothing is stored under its url.
    UriMiss,
    /// Something is stored under its url, but for other fields of `Vary`.
    VaryMiss,
    /// Nothing is stored, for one of the two reasons above.
    Miss,
    /// Something is stored and fresh, but the request wants more.
    Request,
    /// What is stored is stale.
    Stale,
    /// What is stored is a part, and another one is wanted.
    Partial,
}

impl Forward {
    /// As it stands in the field.
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

/// One member of `Cache-Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Answered from what is stored, without the origin.
    pub hit: bool,
    /// Why it went to the origin. Not written for a hit: the two exclude each other.
    pub fwd: Option<Forward>,
    /// The status of the origin's answer.
    pub fwd_status: Option<u16>,
    /// Whole seconds of freshness left; negative when stale. Not written for a response that has just been fetched.
    pub ttl: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request was answered together with others.
    pub collapsed: bool,
    /// What else there is to say.
    pub detail: Option<Detail>,
    /// The coding that it is sent in, if that was made here. Not written: `Content-Encoding` says it.
    pub coding: Option<SentCoding>,
}

impl CacheStatus {
    /// Writes the member at the end of `out`.
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
    fn a_member_says_what_happened() {
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
    fn a_ttl_beyond_what_a_field_can_hold_is_the_most_it_can() {
        let status = CacheStatus {
            hit: true,
            ttl: Some(i64::MIN),
            ..CacheStatus::default()
        };
        check(status, "microcache; hit; ttl=-999999999999999");
    }
}
