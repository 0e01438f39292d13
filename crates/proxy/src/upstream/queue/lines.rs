//! Fair queueing: one line of waiting requests per client address, served in turns.

use std::collections::{BTreeMap, HashMap};

use microcache_engine::Holdings;
use microcache_policy::Network;

/// The lines of all addresses, as tickets. One ticket may stand in several of them.
#[derive(Debug, Default)]
pub(super) struct AddressLines {
    tickets: Holdings,
    /// Turn of each address that has a line; the lowest number is next.
    turn_of: HashMap<Network, u64>,
    turns: BTreeMap<u64, Network>,
}

impl AddressLines {
    /// Puts a ticket at the end of its address's line. If that has none yet, it begins with this turn.
    pub(super) fn join(&mut self, network: Network, ticket: u64, turn: u64) {
        self.tickets.add(network, ticket);
        if !self.turn_of.contains_key(&network) {
            self.set_turn(network, turn);
        }
    }

    /// Takes a ticket out of its address's line.
    pub(super) fn leave(&mut self, network: Network, ticket: u64) {
        self.tickets.remove(network, ticket);
        if self.tickets.count(network) == 0
            && let Some(turn) = self.turn_of.remove(&network)
        {
            self.turns.remove(&turn);
        }
    }

    /// Length of an address's line.
    pub(super) fn length(&self, network: Network) -> usize {
        self.tickets.count(network)
    }

    /// Returns turn, address and first ticket of the next address that may be served.
    pub(super) fn next(&self, may: impl Fn(Network) -> bool) -> Option<(u64, Network, u64)> {
        let mut turns = self.turns.iter();
        let (&turn, &network) = turns.find(|(_, network)| may(**network))?;
        Some((turn, network, self.tickets.oldest(network)?))
    }

    /// Puts an address behind all others after its turn, if its line is not empty.
    pub(super) fn go_behind(&mut self, network: Network, turn: u64) {
        if let Some(had) = self.turn_of.remove(&network) {
            self.turns.remove(&had);
            self.set_turn(network, turn);
        }
    }

    /// Takes the last ticket out of the longest line, if that is longer than the newcomer's would be.
    pub(super) fn cut_longest(&mut self, newcomer: Network) -> Option<(Network, u64)> {
        let (network, ticket) = self.tickets.newest_beyond(newcomer)?;
        self.leave(network, ticket);
        Some((network, ticket))
    }

    fn set_turn(&mut self, network: Network, turn: u64) {
        self.turn_of.insert(network, turn);
        self.turns.insert(turn, network);
    }
}
