//! Decisions about credentials that were made a short time ago. Credentials are kept as keyed hashes only, so that they
//! cannot be found in memory.

use std::time::Instant;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use microcache_policy::Network;

/// Number of sets of a table.
const SETS: usize = 512;
/// Limit of the decisions of a set.
const OF_SET: usize = 8;

/// A keyed hash of credentials and of all else that a decision depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

/// The key of fingerprints, random for each process.
pub(crate) struct FingerprintKey(hmac::Key);

impl FingerprintKey {
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 32];
        // Without random numbers TLS does not work either.
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.expect("the system has random numbers");
        Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// Returns the fingerprint of these parts in this order.
    pub(crate) fn of<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Fingerprint {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.sign().as_ref());
        Fingerprint(bytes)
    }
}

/// Decisions by fingerprint, bounded in time and number.
///
/// A decision has a place in one of many sets, by its fingerprint, which clients cannot foresee. In a full set the
/// network with the most decisions gives way, so that one client that fills the table replaces its own.
pub(crate) struct DecisionTable<T>(Vec<Vec<KnownDecision<T>>>);

struct KnownDecision<T> {
    fingerprint: Fingerprint,
    network: Network,
    until: Instant,
    decision: T,
}

impl<T> Default for DecisionTable<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> DecisionTable<T> {
    pub(crate) fn get(&self, fingerprint: &Fingerprint, now: Instant) -> Option<&T> {
        let set = self.0.get(set_of(fingerprint))?;
        let known = set.iter().find(|it| it.fingerprint == *fingerprint)?;
        (now < known.until).then_some(&known.decision)
    }

    pub(crate) fn remove(&mut self, fingerprint: &Fingerprint) {
        if let Some(set) = self.0.get_mut(set_of(fingerprint)) {
            set.retain(|known| known.fingerprint != *fingerprint);
        }
    }

    /// Keeps a decision about a request of this network.
    pub(crate) fn insert(
        &mut self,
        (fingerprint, network): (Fingerprint, Network),
        decision: T,
        until: Instant,
        now: Instant,
    ) {
        if self.0.is_empty() {
            self.0.resize_with(SETS, Vec::new);
        }
        let set = &mut self.0[set_of(&fingerprint)];
        set.retain(|known| now < known.until && known.fingerprint != fingerprint);
        if set.len() >= OF_SET {
            set.remove(to_replace(set, network));
        }
        set.push(KnownDecision {
            fingerprint,
            network,
            until,
            decision,
        });
    }
}

fn set_of(fingerprint: &Fingerprint) -> usize {
    let [low, high, ..] = fingerprint.0;
    usize::from(u16::from_le_bytes([low, high])) % SETS
}

/// Returns the index of the decision that gives way to one of `network`: the oldest of the network with the most,
/// which is `network` itself if it has as many.
fn to_replace<T>(set: &[KnownDecision<T>], network: Network) -> usize {
    let number_of = |network| set.iter().filter(|it| it.network == network).count();
    let rank = |known: &KnownDecision<T>| (number_of(known.network), known.network == network);
    let indices = (0..set.len()).rev();
    // Of equals, the last in this order is the oldest.
    indices.max_by_key(|&index| rank(&set[index])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIFETIME: Duration = Duration::from_mins(1);

    const CLIENT: Network = Network::from_bits(1);
    const OTHER: Network = Network::from_bits(2);

    #[test]
    fn decisions_are_kept_for_a_bounded_time_and_in_a_bounded_number() {
        let key = FingerprintKey::random();
        let (mut table, now) = (DecisionTable::default(), Instant::now());
        let of = |number: usize| key.of([number.to_string().as_bytes()]);
        assert_eq!(table.get(&of(0), now), None);
        table.insert((of(0), CLIENT), 'a', now + LIFETIME, now);
        assert_eq!(table.get(&of(0), now), Some(&'a'));
        assert_eq!(table.get(&of(1), now), None);
        assert_eq!(table.get(&of(0), now + LIFETIME), None);
        table.insert((of(0), CLIENT), 'b', now + 2 * LIFETIME, now);
        assert_eq!(table.get(&of(0), now + LIFETIME), Some(&'b'));
        for number in 1..=20 * SETS * OF_SET {
            let network = Network::from_bits(number as u64);
            table.insert((of(number), network), 'c', now + LIFETIME, now);
        }
        assert!(table.0.iter().all(|set| set.len() == OF_SET));
        table.insert((of(0), CLIENT), 'd', now + 2 * LIFETIME, now + LIFETIME);
        assert_eq!(table.0[set_of(&of(0))].len(), 1);
    }

    #[test]
    fn a_client_that_fills_the_table_replaces_its_own_decisions() {
        let key = FingerprintKey::random();
        let (mut table, now) = (DecisionTable::default(), Instant::now());
        let of =
            |kind: &str, number: usize| key.of([kind.as_bytes(), number.to_string().as_bytes()]);
        // Few enough that no set has more of them than it has of the client that fills it.
        let others = SETS / 4;
        let network = |number: usize| Network::from_bits(100 + number as u64);
        for number in 0..others {
            table.insert(
                (of("other", number), network(number)),
                'a',
                now + LIFETIME,
                now,
            );
        }
        for number in 0..20 * SETS * OF_SET {
            table.insert((of("flood", number), CLIENT), 'b', now + LIFETIME, now);
        }
        let kept = (0..others).filter(|&number| table.get(&of("other", number), now).is_some());
        assert_eq!(kept.count(), others);
        table.insert((of("late", 0), OTHER), 'c', now + LIFETIME, now);
        assert_eq!(table.get(&of("late", 0), now), Some(&'c'));
    }

    #[test]
    fn each_part_makes_another_fingerprint() {
        let key = FingerprintKey::random();
        let of = |parts: [&str; 3]| key.of(parts.map(str::as_bytes));
        let all = [
            of(["hash", "ann", "secret"]),
            of(["hash", "ann", "secre"]),
            of(["hash", "anns", "ecret"]),
            of(["hasha", "nn", "secret"]),
            FingerprintKey::random().of(["hash", "ann", "secret"].map(str::as_bytes)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other != one), "{index}");
        }
        assert!(all[0] == of(["hash", "ann", "secret"]));
    }
}
