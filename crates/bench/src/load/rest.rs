//! How long to leave a server alone that has failed.

use std::time::Duration;

/// After a first fault, then twice as long each time: a server that is down is not asked as fast as the machine can.
const SHORTEST: Duration = Duration::from_millis(10);
const MOST_DOUBLINGS: u32 = 6;

/// The faults since the last answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    faults: u32,
}

impl Rest {
    pub(crate) fn succeeded(&mut self) {
        self.faults = 0;
    }

    /// Says how long to rest now.
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
        let mut rest = Rest::default();
        let rests: Vec<_> = (0..9).map(|_| rest.failed().as_millis()).collect();
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 640, 640, 640]);
        rest.succeeded();
        assert_eq!(rest.failed().as_millis(), 10);
    }
}
