//! Back-off after failed requests.

use std::time::Duration;

/// Delay after the first failure, doubled by each further one, so that a server that is down is not flooded.
const SHORTEST: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 6;

/// Number of consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    faults: u32,
}

impl Backoff {
    pub(crate) fn succeeded(&mut self) {
        self.faults = 0;
    }

    /// Returns the delay before the next request.
    pub(crate) fn failed(&mut self) -> Duration {
        let rest = SHORTEST * (1 << self.faults.min(MOST_DOUBLINGS));
        self.faults = self.faults.saturating_add(1);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_a_bound() {
        let mut rest = Backoff::default();
        let rests: Vec<_> = (0..9).map(|_| rest.failed().as_millis()).collect();
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
        rest.succeeded();
        assert_eq!(rest.failed().as_millis(), 10);
    }
}
