//! Sampling of hits: one in sixteen, because reading the clock costs as much as parsing a request.

use std::cell::Cell;

/// Average sampling interval.
pub(super) const ONE_IN: u64 = 16;

thread_local! {
    /// Hits up to and including the next sampled one.
    static LEFT: Cell<u64> = const { Cell::new(1) };
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// Returns true if this thread's next hit is sampled.
pub(crate) fn is_next() -> bool {
    LEFT.get() == 1
}

/// Counts a hit and returns true if it is sampled. Must be called once per hit.
pub(super) fn take() -> bool {
    let left = LEFT.get() - 1;
    if left > 0 {
        LEFT.set(left);
        return false;
    }
    LEFT.set(gap());
    true
}

/// Distance to the next sample. It is random, so that no periodic request pattern is missed.
fn gap() -> u64 {
    let mut random = RANDOM.get();
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    // The mean of 1 to 31 is 16.
    1 + (random >> 33) % (2 * ONE_IN - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_sixteen_is_sampled_and_each_client_in_turn() {
        let rounds = 16_000;
        let mut taken = [0_u64; 16];
        for number in 0..rounds * 16 {
            let is_next = is_next();
            assert_eq!(take(), is_next);
            taken[number % 16] += u64::from(is_next);
        }
        // Each has its turn 1000 times, give or take.
        assert!(
            taken.iter().all(|times| (850..1150).contains(times)),
            "{taken:?}"
        );
    }
}
