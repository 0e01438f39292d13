//! Normalization of `Accept-Encoding` to the codings in use.

use crate::fields::{Fields, FieldsBuf};
use crate::known_name::names;

use super::weighted::read;

pub(super) const NAME: &str = "accept-encoding";

/// The codings that servers and browsers use. Others are never requested, so no response has them.
const KNOWN: [&str; 7] = ["gzip", "deflate", "br", "zstd", "compress", "dcb", "dcz"];

/// The number of codings that `*` includes; the others must be named.
const COMMON: usize = 4;

/// A set of content codings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codings(u16);

impl Codings {
    const ALL: u16 = (1 << KNOWN.len()) - 1;
    /// The identity coding is refused.
    const NO_IDENTITY: u16 = 1 << 14;
    /// The field is present.
    const PRESENT: u16 = 1 << 15;

    /// The codings that a request accepts. A malformed field counts as absent.
    pub fn accepted(request: Fields<'_>) -> Self {
        let Some(members) = read(request, names::ACCEPT_ENCODING) else {
            return Self::default();
        };
        // The lowest weight of a coding that is listed twice counts.
        let mut weights = [None; KNOWN.len()];
        let (mut identity, mut others) = (None, None);
        for member in &members {
            let named = match member.token {
                b"*" => &mut others,
                token if token.eq_ignore_ascii_case(b"identity") => &mut identity,
                token => match known(token).and_then(|bit| weights.get_mut(bit)) {
                    Some(weight) => weight,
                    None => continue,
                },
            };
            *named = Some(named.map_or(member.weight, |before: u16| before.min(member.weight)));
        }
        let mut set = Self::PRESENT;
        for (bit, named) in weights.into_iter().enumerate() {
            let unnamed = others.filter(|_| bit < COMMON);
            if named.or(unnamed).unwrap_or(0) > 0 {
                set |= 1 << bit;
            }
        }
        // Identity is acceptable unless it is refused, by name or by `*` (RFC 9110 §12.5.3).
        if identity.or(others) == Some(0) {
            set |= Self::NO_IDENTITY;
        }
        Self(set)
    }

    /// Returns true if the set contains this coding.
    pub fn has(self, coding: &str) -> bool {
        known(coding.as_bytes()).is_some_and(|bit| self.0 & (1 << bit) != 0)
    }

    /// The codings of a response.
    fn of_response(response: Fields<'_>) -> Self {
        let mut set = 0;
        for coding in response.members("content-encoding") {
            for (bit, known) in KNOWN.iter().enumerate() {
                if coding.eq_ignore_ascii_case(known.as_bytes()) {
                    set |= 1 << bit;
                }
            }
        }
        Self(set)
    }

    pub(super) const fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    pub(super) const fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Writes the normalized field, so that the origin's response depends on this set alone.
    pub(super) fn write(self, request: &mut FieldsBuf) {
        request.remove(NAME);
        if self.0 & Self::PRESENT != 0 {
            request.push("Accept-Encoding", self.to_text());
        }
    }

    /// The normalized value of the field; empty if it is absent.
    pub(super) fn to_text(self) -> String {
        if self.0 & Self::PRESENT == 0 {
            return String::new();
        }
        let accepted = KNOWN.iter().enumerate();
        let mut list: Vec<&str> = accepted
            .filter(|(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, coding)| *coding)
            .collect();
        if self.0 & Self::NO_IDENTITY != 0 {
            list.push("identity;q=0");
        } else if list.is_empty() {
            list.push("identity");
        }
        list.join(", ")
    }
}

/// The index in [`KNOWN`] of a coding. `x-gzip` and `x-compress` are aliases (RFC 9110 §8.4.1).
fn known(token: &[u8]) -> Option<usize> {
    let token = match token {
        [b'x' | b'X', b'-', rest @ ..]
            if rest.eq_ignore_ascii_case(b"gzip") || rest.eq_ignore_ascii_case(b"compress") =>
        {
            rest
        }
        token => token,
    };
    KNOWN
        .iter()
        .position(|known| token.eq_ignore_ascii_case(known.as_bytes()))
}

/// The codings observed for one url: those of its responses, and those that its requests accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedCodings {
    used: Codings,
    offered: Codings,
}

impl ObservedCodings {
    /// No codings.
    pub const NONE: Self = Self {
        used: Codings(0),
        offered: Codings(0),
    };

    pub(super) fn note(&mut self, response: Fields<'_>, accepted: Codings) {
        self.used.0 |= Codings::of_response(response).0;
        self.offered.0 |= accepted.0 & Codings::ALL;
    }

    /// The codings that select: those in use, and those not offered yet. A coding that the origin was offered and has
    /// never used makes no difference.
    pub const fn telling(self) -> Codings {
        Codings(self.used.0 | !self.offered.0)
    }
}
