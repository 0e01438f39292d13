//! Lists of tokens with weights: `gzip, br;q=0.5` (RFC 9110 §12.4.2).

use smallvec::SmallVec;

use crate::fields::{Fields, split_list};
use crate::known_name::KnownName;
use crate::syntax::is_token;

/// A member, with its weight in thousandths.
#[derive(Clone, Copy)]
pub(crate) struct WeightedToken<'a> {
    pub(crate) token: &'a [u8],
    pub(crate) weight: u16,
}

/// Maximum number of members. A longer field counts as malformed.
pub(crate) const MAX_MEMBERS: usize = 64;

/// The members over all lines of a field; `None` if it is absent or malformed.
pub(crate) fn read(
    request: Fields<'_>,
    name: KnownName,
) -> Option<SmallVec<[WeightedToken<'_>; 16]>> {
    let mut members = SmallVec::new();
    let mut present = false;
    for line in request.values(name) {
        present = true;
        for member in split_list(line) {
            members.push(weighted(member)?);
            if members.len() > MAX_MEMBERS {
                return None;
            }
        }
    }
    present.then_some(members)
}

/// Parses `token`, or `token;q=0.5` with optional white space around the semicolon.
fn weighted(member: &[u8]) -> Option<WeightedToken<'_>> {
    let (token, weight) = match memchr::memchr(b';', member) {
        None => (member, 1000),
        Some(semicolon) => {
            let parameter = member[semicolon + 1..].trim_ascii_start();
            let [b'q' | b'Q', b'=', value @ ..] = parameter else {
                return None;
            };
            (member[..semicolon].trim_ascii_end(), thousandths(value)?)
        }
    };
    is_token(token).then_some(WeightedToken { token, weight })
}

/// Parses a weight: 0 to 1 with at most three decimals.
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (decimal, unit) in decimals.iter().zip([100, 10, 1]) {
        weight += match decimal {
            b'0'..=b'9' => u16::from(decimal - b'0') * unit,
            _ => return None,
        };
    }
    (weight <= 1000).then_some(weight)
}
