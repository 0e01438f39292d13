//! Random numbers that differ by process and call. Not cryptographically secure.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns a random number.
pub fn number() -> u64 {
    // `RandomState` is seeded by the system per thread, and differs by instance.
    RandomState::new().hash_one(())
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
}
