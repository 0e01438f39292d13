//! Which hits are looked at more closely: one in sixteen, since to read the clock costs as much as to
//! parse a request.

use std::cell::Cell;

/// On average one hit in so many is looked at.
pub(super) const ONE_IN: u64 = 16;

thread_local! {
    /// Hits until the next one that is looked at, and it.
    static LEFT: Cell<u64> = const { Cell::new(1) };
    static RANDOM: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) };
}

/// Whether the next hit of this thread is looked at.
pub(crate) fn is_next() -> bool {
    LEFT.get() == 1
}

/// Whether this hit is looked at. To be asked once of each.
pub(super) fn take() -> bool {
    let left = LEFT.get() - 1;
    if left > 0 {
        LEFT.set(left);
        return false;
    }
    LEFT.set(gap());
    true
}

/// From one to the next. It is random, so that requests which take turns all have theirs.
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
    fn one_in_sixteen_is_taken_and_of_those_that_take_turns_each() {
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
