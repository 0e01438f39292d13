//! One fetch per fleet: how processes that share servers agree on who asks the origin.
//!
//! **To bring what is not there** (a fill): `mg k v c f N<hold>`. Of all who ask, the server tells
//! one that it won (`W`), and puts an empty item there with a number (`c`), which expires after
//! `hold`. The others are told that somebody is at it (`Z`). The winner stores with
//! `ms k … C<number>`, which is refused if the item changed (`EX`) or is gone (`NF`): its time was
//! over, or the record was removed meanwhile. To give up is `md k C<number>`. If the winner dies,
//! the empty item expires, and the next one to ask wins.
//!
//! **To renew what is there** (a renewal): memcached's own way, to mark the item as stale, knows
//! no end: if the winner dies, nobody else is ever told to renew. So an item beside it is the
//! lock, `ms k:r 0 T<hold> ME`, which only one can add, and which expires. In the same breath
//! `mg k c N<hold>` reads the number of what is to be renewed; if there is nothing any more, this
//! is a fill. The winner stores with `ms k … C<number>` as above and then deletes the lock. To
//! give up is `md k:r`.
//!
//! A claim that is asked for and not answered may have been given, and one that is given back without an
//! answer may still be there: [`super::unsure`].
//!
//! A removal deletes both items, so whatever was claimed before it cannot be stored after it.
//! Numbers come from one server and mean nothing to another: a token says which one gave it.

use super::settings::MAX_SERVERS;
use crate::tier::Token;

/// What a claim was given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// There was nothing.
    Fill,
    /// There was something, and there is a lock.
    Renewal,
}

/// A claim that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) purpose: Purpose,
    /// The server that gave it.
    pub(super) server: usize,
    /// The number the item must still have.
    pub(super) number: u64,
}

const RENEWAL: u64 = 1 << 63;
const SERVER_SHIFT: u32 = 53;
const NUMBER_MASK: u64 = (1 << SERVER_SHIFT) - 1;
const SERVER_MASK: u64 = MAX_SERVERS as u64 - 1;

impl Grant {
    /// As a token. `None` if the server counts beyond what fits: it would have to change an item
    /// a million times a second for 285 years.
    pub(super) fn to_token(self) -> Option<Token> {
        let kind = match self.purpose {
            Purpose::Fill => 0,
            Purpose::Renewal => RENEWAL,
        };
        let server = (self.server as u64) << SERVER_SHIFT;
        (self.number <= NUMBER_MASK).then_some(Token(kind | server | self.number))
    }
}

impl From<Token> for Grant {
    fn from(Token(bits): Token) -> Self {
        Self {
            purpose: if bits & RENEWAL == 0 {
                Purpose::Fill
            } else {
                Purpose::Renewal
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
        for purpose in [Purpose::Fill, Purpose::Renewal] {
            for server in [0, 1, MAX_SERVERS - 1] {
                for number in [0, 1, NUMBER_MASK] {
                    let grant = Grant {
                        purpose,
                        server,
                        number,
                    };
                    assert_eq!(grant.to_token().map(Grant::from), Some(grant));
                }
            }
        }
        let beyond = Grant {
            purpose: Purpose::Fill,
            server: 0,
            number: NUMBER_MASK + 1,
        };
        assert_eq!(beyond.to_token(), None);
    }
}
