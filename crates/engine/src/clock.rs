//! What time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use microcache_policy::Time;
use tokio::time::Instant;

/// Wall-clock time that never goes back: the wall clock at the start, and the monotonic clock from
/// there. An operator who sets the machine's clock neither revives nor kills what is stored.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    wall: Time,
}

impl Clock {
    /// Starts at the machine's time.
    pub fn start() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        Self {
            started: Instant::now(),
            wall: Time::from_millis(wall),
        }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        self.wall.plus(self.started.elapsed().as_millis() as u64)
    }
}
