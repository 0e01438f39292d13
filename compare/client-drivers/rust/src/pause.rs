//! Pauses as exact as the kernel's: the runtime's own end at whole milliseconds, a tenth of what users pause here.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

pub struct Pause {
    timer: AsyncFd<OwnedFd>,
}

impl Pause {
    pub fn new() -> Self {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).expect("a timer");
        // SAFETY: an `OwnedFd` stays open, and the same, for as long as it lives.
        let timer = unsafe { AsyncFd::register(timer) };
        Self {
            timer: timer.expect("a runtime"),
        }
    }

    pub async fn take(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: pause.as_secs() as i64,
                tv_nsec: pause.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).expect("a timer");
        loop {
            let mut ready = self.timer.readable().await.expect("a timer");
            let mut count = [0; 8];
            if ready
                .try_io(|timer| Ok(rustix::io::read(timer, &mut count)?))
                .is_ok()
            {
                return;
            }
        }
    }
}
