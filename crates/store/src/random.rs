//! Random numbers that differ by process and call. Not cryptographically secure.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

thread_local! {
    static SEQUENCE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes the random numbers of this thread a sequence that depends on the seed alone, for simulations.
pub fn seed(seed: u64) {
    SEQUENCE.set(Some(seed));
}

/// Returns a random number.
pub fn number() -> u64 {
    let Some(last) = SEQUENCE.get() else {
        // `RandomState` is seeded by the system per thread, and differs by instance.
        return RandomState::new().hash_one(());
    };
    // SplitMix64.
    let next = last.wrapping_add(0x9e37_79b9_7f4a_7c15);
    SEQUENCE.set(Some(next));
    let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Returns a duration that deviates by a random fraction of up to `spread`, so that processes do not act in
/// lockstep.
pub(crate) fn jittered(pause: Duration, spread: f64) -> Duration {
    let share = (number() >> 11) as f64 / (1_u64 << 53) as f64;
    pause.mul_f64(1.0 - spread + 2.0 * spread * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_within_bounds() {
        let pause = Duration::from_secs(2);
        let pauses: Vec<Duration> = (0..100).map(|_| jittered(pause, 0.25)).collect();
        assert!(pauses.iter().all(|p| (1500..2500).contains(&p.as_millis())));
        assert!(pauses.iter().any(|p| p != &pauses[0]));
    }

    #[test]
    fn a_seed_repeats_the_numbers() {
        let numbers = |of| {
            seed(of);
            [number(), number(), number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }
}
