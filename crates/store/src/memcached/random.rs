//! Numbers that differ from process to process and from call to call. Not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Any number.
pub(super) fn number() -> u64 {
    // Keys from the system for each thread, and other ones for each state.
    RandomState::new().hash_one(())
}

/// Between three quarters of a pause and five quarters: what many do after one event should not
/// happen at one moment.
pub(super) fn jittered(pause: Duration) -> Duration {
    const STEPS: u64 = 1000;
    pause * 3 / 4 + pause / 2 * (number() % STEPS) as u32 / STEPS as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_within_bounds() {
        let pause = Duration::from_secs(2);
        let pauses: Vec<Duration> = (0..100).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|p| (1500..2500).contains(&p.as_millis())));
        assert!(pauses.iter().any(|p| p != &pauses[0]));
    }
}
