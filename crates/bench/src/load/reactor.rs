//! Event loop of a thread. No async runtime, because at 100,000 requests per second its overhead would exceed
//! the server's own cost.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::error::LoadError;

/// Size of the receive buffer, in bytes.
const BUFFER: usize = 64 * 1024;
/// Maximum of events per `epoll_wait`.
pub(super) const EVENTS: usize = 512;
/// Interval at which timeouts and the end of the run are checked.
const ROUND: Duration = Duration::from_millis(20);

/// Epoll instance of a thread, and the receive buffer that its sockets share.
pub(super) struct Reactor {
    epoll: OwnedFd,
    buffer: Vec<u8>,
    next_round: Instant,
}

impl Reactor {
    /// # Errors
    ///
    /// [`LoadError::System`] if epoll is unavailable.
    pub(super) fn new() -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        Ok(Self {
            epoll: epoll.map_err(|why| LoadError::system("an epoll instance", why))?,
            buffer: vec![0; BUFFER],
            next_round: Instant::now() + ROUND,
        })
    }

    /// Watches a descriptor for all events, edge-triggered, so that no system call per request is needed.
    pub(super) fn watch(&self, descriptor: impl AsFd, id: u64) -> io::Result<()> {
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            descriptor,
            EventData::new_u64(id),
            all,
        )?)
    }

    /// Watches a watched socket only for the end of the connection from now on.
    pub(super) fn watch_end(&self, socket: impl AsFd, id: u64) -> io::Result<()> {
        let end = EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::modify(
            &self.epoll,
            socket,
            EventData::new_u64(id),
            end,
        )?)
    }

    /// Waits for events until `until` or the next round.
    ///
    /// # Errors
    ///
    /// [`LoadError::System`] if the system call fails.
    pub(super) fn wait(
        &self,
        events: &mut Vec<epoll::Event>,
        until: Option<Instant>,
    ) -> Result<(), LoadError> {
        let until = until.map_or(self.next_round, |until| until.min(self.next_round));
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(LoadError::system("waiting for events", why)),
        }
    }

    /// Returns whether a round is due, and schedules the next one if so.
    pub(super) fn begins_round(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_round;
        if is_due {
            self.next_round = now + ROUND;
        }
        is_due
    }

    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}
