//! Claims (leases) across processes that share a pool: one fetch per entry and fleet.
//!
//! **Fill** of a missing record: `mg k v c f N<hold>`. The server grants the claim to one client (`W`) and
//! creates an empty item with a CAS number (`c`) that expires after `hold`; others see that it is claimed
//! (`Z`). The holder stores with `ms k … C<number>`, which fails if the item has changed (`EX`) or is gone
//! (`NF`): the claim has expired, or the record was removed. `md k C<number>` releases the claim. If the
//! holder dies, the empty item expires and the next request gets the claim.
//!
//! **Renewal** of an existing record: memcached's own stale marking has no timeout, so the death of the
//! holder would prevent any further renewal. Instead, a separate item is the lock, `ms k:r 0 T<hold> ME`,
//! which only one client can add and which expires. In the same round trip, `mg k c N<hold>` returns the CAS
//! number of the record; if it is gone, the claim becomes a fill. The holder stores with `ms k … C<number>`
//! as above, then deletes the lock. `md k:r` releases the claim.
//!
//! A claim request without a response may have been granted, and an unconfirmed release may have failed; see
//! [`super::pending_claims`].
//!
//! A removal deletes both items, so nothing claimed before it can be stored after it. CAS numbers are
//! specific to a server, which is therefore part of the token.

use super::settings::MAX_SERVERS;
use crate::tier::Token;

/// Purpose of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimPurpose {
    /// The record was missing.
    Fill,
    /// The record exists, and a lock was added.
    Renewal,
}

/// Claim held by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimGrant {
    pub(super) purpose: ClaimPurpose,
    /// Index of the server that granted it.
    pub(super) server: usize,
    /// CAS number that the item must still have.
    pub(super) number: u64,
}

const RENEWAL: u64 = 1 << 63;
const SERVER_SHIFT: u32 = 53;
const NUMBER_MASK: u64 = (1 << SERVER_SHIFT) - 1;
const SERVER_MASK: u64 = MAX_SERVERS as u64 - 1;

impl ClaimGrant {
    /// Encodes the claim as a token; `None` if the CAS number is too large, which takes a million changes
    /// per second over 285 years.
    pub(super) fn to_token(self) -> Option<Token> {
        let kind = match self.purpose {
            ClaimPurpose::Fill => 0,
            ClaimPurpose::Renewal => RENEWAL,
        };
        let server = (self.server as u64) << SERVER_SHIFT;
        (self.number <= NUMBER_MASK).then_some(Token(kind | server | self.number))
    }
}

impl From<Token> for ClaimGrant {
    fn from(Token(bits): Token) -> Self {
        Self {
            purpose: if bits & RENEWAL == 0 {
                ClaimPurpose::Fill
            } else {
                ClaimPurpose::Renewal
            },
            server: (bits >> SERVER_SHIFT & SERVER_MASK) as usize,
            number: bits & NUMBER_MASK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for purpose in [ClaimPurpose::Fill, ClaimPurpose::Renewal] {
            for server in [0, 1, MAX_SERVERS - 1] {
                for number in [0, 1, NUMBER_MASK] {
                    let grant = ClaimGrant {
                        purpose,
                        server,
                        number,
                    };
                    assert_eq!(grant.to_token().map(ClaimGrant::from), Some(grant));
                }
            }
        }
        let beyond = ClaimGrant {
            purpose: ClaimPurpose::Fill,
            server: 0,
            number: NUMBER_MASK + 1,
        };
        assert_eq!(beyond.to_token(), None);
    }
}
