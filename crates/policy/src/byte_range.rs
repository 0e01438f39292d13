//! The range of bytes in a `Range` field (RFC 9110 §14.1.2).

use crate::fields::split_list;

/// One range of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// From a first byte to a last one, or to the end.
    From {
        /// The first byte.
        first: u64,
        /// The last byte, if given.
        last: Option<u64>,
    },
    /// The last bytes, by their number.
    Suffix(u64),
}

impl RequestedRange {
    /// Parses the value of `Range`, if it is one range of bytes.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let (unit, ranges) = value.split_at_checked(b"bytes=".len())?;
        if !unit.eq_ignore_ascii_case(b"bytes=") {
            return None;
        }
        let mut ranges = split_list(ranges);
        let (range, None) = (ranges.next()?, ranges.next()) else {
            return None;
        };
        let dash = memchr::memchr(b'-', range)?;
        match (&range[..dash], &range[dash + 1..]) {
            (b"", count) => number(count).map(Self::Suffix),
            (first, b"") => Some(Self::From {
                first: number(first)?,
                last: None,
            }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From {
                    first,
                    last: Some(last),
                })
            }
        }
    }
}

/// Parses digits. A number that overflows is beyond every body.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit))
    })
}
