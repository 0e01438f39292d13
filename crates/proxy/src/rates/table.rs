//! Rate-limit states in a table of fixed size.
//!
//! A key hashes to one of a few slots. If all are taken, the one with the most recovered quota is evicted:
//! clients at their limit stay, however many others there are, and a flood of new keys evicts its own. An
//! evicted key starts anew. So no client is locked out by others, and none can reset its limit except by
//! filling the table with keys closer to theirs.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::gcra::{Gcra, Micros, TooEarly};

/// Slots of a row, adjacent in memory.
const CHOICE: usize = 8;

/// Rate-limit states by hashed key.
pub(crate) struct RateTable {
    rows: Box<[Mutex<[RateSlot; CHOICE]>]>,
    /// Random hash key, so that clients cannot construct collisions.
    secret: RandomState,
    forgotten: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct RateSlot {
    name: u64,
    /// GCRA state: time until which the quota is used up.
    used_until: Micros,
}

impl RateTable {
    /// A table with at least this many slots; its number of rows is a power of two.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            rows: (0..rows(places)).map(|_| Mutex::default()).collect(),
            secret: RandomState::new(),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Returns true if the table has the size for this number of slots.
    pub(crate) fn is_of(&self, places: usize) -> bool {
        self.rows.len() == rows(places)
    }

    /// Number of states evicted before their quota had recovered.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Counts a request under this key, or refuses it.
    pub(crate) fn take(&self, who: impl Hash, gcra: Gcra, now: Micros) -> Result<(), TooEarly> {
        let name = self.secret.hash_one(who);
        let mut row = self.row(name).lock();
        let known = row.iter_mut().find(|place| place.name == name);
        if let Some(place) = known {
            return gcra.take(&mut place.used_until, now);
        }
        let mut used_until = 0;
        gcra.take(&mut used_until, now)?;
        if let Some(least) = row.iter_mut().min_by_key(|place| place.used_until) {
            if least.used_until > now {
                self.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            *least = RateSlot { name, used_until };
        }
        Ok(())
    }

    /// Requests that this key is allowed at once.
    pub(crate) fn left(&self, who: impl Hash, gcra: Gcra, now: Micros) -> u64 {
        let name = self.secret.hash_one(who);
        let row = self.row(name).lock();
        let known = row.iter().find(|place| place.name == name);
        gcra.left(known.map_or(0, |place| place.used_until), now)
    }

    fn row(&self, name: u64) -> &Mutex<[RateSlot; CHOICE]> {
        // The number of rows is a power of two.
        &self.rows[name as usize & (self.rows.len() - 1)]
    }
}

fn rows(places: usize) -> usize {
    places.div_ceil(CHOICE).max(1).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const NOW: Micros = 1_700_000_000 * SECOND;

    /// Takes requests until the first refusal, and counts them.
    fn drain(table: &RateTable, who: u32, gcra: Gcra, now: Micros) -> usize {
        (0..1000)
            .take_while(|_| table.take(who, gcra, now).is_ok())
            .count()
    }

    #[test]
    fn each_is_counted_by_himself() {
        let table = RateTable::new(1000);
        assert!(table.is_of(1024) && !table.is_of(1025));
        let gcra = Gcra::new(10, SECOND, 5);
        for who in 0..50 {
            assert_eq!(table.left(who, gcra, NOW), 5);
            assert_eq!(drain(&table, who, gcra, NOW), 5, "{who}");
            assert_eq!(table.left(who, gcra, NOW), 0);
        }
        assert_eq!(drain(&table, 7, gcra, NOW + SECOND / 10), 1);
        assert_eq!(table.forgotten(), 0);
    }

    #[test]
    fn a_crowd_of_addresses_neither_resets_nor_blocks_others() {
        let table = RateTable::new(64);
        // A row has room for eight: a few of the crowd go on, and most of it is forgotten.
        let gcra = Gcra::new(1, SECOND, 5);
        let at_their_limits = [1, 2, 3];
        for who in at_their_limits {
            assert_eq!(drain(&table, who, gcra, NOW), 5);
        }
        for who in 1000..100_000 {
            assert_eq!(table.take(who, gcra, NOW), Ok(()), "{who} is new");
        }
        assert!(table.forgotten() > 90_000);
        for who in at_their_limits {
            assert!(
                table.take(who, gcra, NOW).is_err(),
                "{who} was not forgotten"
            );
        }
        // Evicting a fully recovered state loses nothing.
        let forgotten = table.forgotten();
        for who in 10..18 {
            assert_eq!(table.take(who, gcra, NOW + 60 * SECOND), Ok(()));
        }
        assert_eq!(table.forgotten(), forgotten);
    }

    #[test]
    fn a_full_table_still_admits_new_clients() {
        let table = RateTable::new(8);
        let gcra = Gcra::new(1, SECOND, 3);
        for who in 0..1000 {
            assert!(drain(&table, who, gcra, NOW) >= 3, "{who}");
        }
    }
}
