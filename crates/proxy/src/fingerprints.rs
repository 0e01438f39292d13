//! Decisions about credentials that were made a short time ago. Credentials are kept as keyed hashes only, so that they
//! cannot be found in memory.

use std::collections::HashMap;
use std::time::Instant;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Limit of the entries of a table.
const MOST: usize = 4096;

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
pub(crate) struct DecisionTable<T>(HashMap<Fingerprint, (T, Instant)>);

impl<T> Default for DecisionTable<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> DecisionTable<T> {
    pub(crate) fn get(&self, fingerprint: &Fingerprint, now: Instant) -> Option<&T> {
        let (decision, until) = self.0.get(fingerprint)?;
        (now < *until).then_some(decision)
    }

    pub(crate) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        decision: T,
        until: Instant,
        now: Instant,
    ) {
        if self.0.len() >= MOST {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MOST
            && let Some(any) = self.0.keys().next().copied()
        {
            self.0.remove(&any);
        }
        self.0.insert(fingerprint, (decision, until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIFETIME: Duration = Duration::from_mins(1);

    #[test]
    fn decisions_are_kept_for_a_bounded_time_and_in_a_bounded_number() {
        let key = FingerprintKey::random();
        let (mut table, now) = (DecisionTable::default(), Instant::now());
        let of = |number: usize| key.of([number.to_string().as_bytes()]);
        table.insert(of(0), 'a', now + LIFETIME, now);
        assert_eq!(table.get(&of(0), now), Some(&'a'));
        assert_eq!(table.get(&of(1), now), None);
        assert_eq!(table.get(&of(0), now + LIFETIME), None);
        for number in 1..=MOST + 1 {
            table.insert(of(number), 'b', now + LIFETIME, now);
        }
        assert_eq!(table.0.len(), MOST);
        table.insert(of(0), 'c', now + 2 * LIFETIME, now + LIFETIME);
        assert_eq!(table.0.len(), 1);
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
