//! Numbers that differ from process to process and from call to call. Not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Any number.
pub fn number() -> u64 {
    // Keys from the system for each thread, and other ones for each state.
    RandomState::new().hash_one(())
}

/// A pause, shorter or longer by up to `spread` of it: what many do after one event should not
/// happen at one moment.
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
