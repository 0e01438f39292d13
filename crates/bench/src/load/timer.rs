//! Timer based on timerfd, since the timeout of epoll has a resolution of only a millisecond.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// One-shot timer.
#[derive(Debug)]
pub(crate) struct OneShotTimer {
    descriptor: OwnedFd,
    set_to: Option<Instant>,
}

impl OneShotTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self {
            descriptor: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set_to: None,
        })
    }

    /// Arms the timer for `at`.
    pub(crate) fn set(&mut self, at: Instant) -> io::Result<()> {
        if self.set_to.replace(at) == Some(at) {
            return Ok(());
        }
        // Zero would disarm the timer.
        let left = at
            .saturating_duration_since(Instant::now())
            .max(Duration::from_nanos(1));
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &time)?;
        Ok(())
    }
}

impl AsRawFd for OneShotTimer {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl AsFd for OneShotTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
