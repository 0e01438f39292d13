//! Clock of the server with the purge log, which is the same one for all processes.

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, sleep};

use super::RedisInner;

/// Interval of looks at it: clocks drift by less than a second in this time.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Time after which a reply says too little: this process or the server has been stopped meanwhile.
const MAX_DELAY: Duration = Duration::from_secs(1);

impl RedisInner {
    /// Compares the clocks for as long as it is polled.
    pub(super) async fn keep_clock(self: Arc<Self>) {
        loop {
            sleep(LOOK_EVERY).await;
            self.look_at_clock().await;
        }
    }

    /// Compares the clocks, if the server can be reached.
    pub(super) async fn look_at_clock(&self) {
        let asked = Instant::now();
        if let Ok(time) = self.request_log(&redis::cmd("TIME")).await
            && let Ok((seconds, micros)) = redis::from_redis_value::<(u64, u64)>(time)
        {
            let delay = asked.elapsed();
            if delay < MAX_DELAY {
                let since = micros / 1000 + delay.as_millis() as u64 / 2;
                self.clock.note(Time::from_secs(seconds).plus(since));
            }
        }
    }
}
