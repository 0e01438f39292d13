//! Limit of connections that are reserved for one client each, fair between addresses.

use std::sync::Arc;

use microcache_engine::Holdings;
use microcache_policy::Network;
use parking_lot::Mutex;

/// The reservations of a group, `max_signed_in` at most.
#[derive(Debug)]
pub(super) struct Reservations {
    max: usize,
    held: Mutex<HeldReservations>,
}

#[derive(Debug, Default)]
struct HeldReservations {
    by_network: Holdings,
    total: usize,
    last: u64,
}

/// Permit for one reserved connection.
pub(super) struct Reservation {
    reservations: Arc<Reservations>,
    network: Network,
    number: u64,
}

impl Reservations {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let held = Mutex::default();
        Arc::new(Self { max, held })
    }

    /// Grants a reservation, unless the address holds as many as are free.
    pub(super) fn try_take(self: &Arc<Self>, network: Network) -> Option<Reservation> {
        let mut held = self.held.lock();
        if !held.by_network.may_add(network, self.max - held.total) {
            return None;
        }
        held.total += 1;
        held.last += 1;
        let number = held.last;
        held.by_network.add(network, number);
        Some(Reservation {
            reservations: Arc::clone(self),
            network,
            number,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.reservations.held.lock();
        held.by_network.remove(self.network, self.number);
        held.total -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_leaves_reservations_to_others() {
        let all = Reservations::new(8);
        let network = |last| Network::of(Ipv4Addr::new(192, 0, 2, last).into());
        let take = |last| {
            let taken = std::iter::from_fn(|| all.try_take(network(last)));
            taken.collect::<Vec<_>>()
        };
        let first = take(1);
        assert_eq!(first.len(), 4);
        let (second, third, fourth) = (take(2), take(3), take(4));
        assert_eq!([second.len(), third.len(), fourth.len()], [2, 1, 1]);
        assert!(take(5).is_empty());
        drop(first);
        assert_eq!(take(1).len(), 2);
        drop((second, third, fourth));
        assert_eq!(take(5).len(), 4);
        assert!(Reservations::new(0).try_take(network(1)).is_none());
        assert!(Reservations::new(1).try_take(network(1)).is_some());
    }
}
