//! CPU time of this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// User and system, all threads, so far.
pub fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
