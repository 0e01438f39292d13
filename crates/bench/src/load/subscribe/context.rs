//! State shared by the publisher and the stream workers of a run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::document::RunIdentity;
use super::settings::SubscribeSettings;
use crate::load::plan::ServerEndpoint;
use crate::load::settings::Settings;

/// Polling interval while streams open and while the run lasts.
const LOOK: Duration = Duration::from_millis(5);

/// Progress of a subscription run.
#[derive(Clone, Copy, Debug)]
pub struct SubscribeProgress {
    /// Streams to open.
    pub wanted: usize,
    /// Streams opened so far.
    pub opened: usize,
    /// Events received so far.
    pub events: u64,
    /// Publications accepted so far.
    pub published: u64,
}

/// State shared by all threads.
pub(super) struct RunContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) subscribe: &'a SubscribeSettings,
    pub(super) endpoint: ServerEndpoint,
    pub(super) run: RunIdentity,
    /// Streams that have been opened or have failed.
    pub(super) settled: AtomicUsize,
    pub(super) opened: AtomicUsize,
    pub(super) events: AtomicU64,
    /// Number of the newest accepted publication.
    pub(super) newest: AtomicU64,
    /// Number of the newest publication sent; greater numbers cannot be genuine.
    pub(super) sent: AtomicU64,
    /// Numbers whose responses were lost. They may have been published, so they are not reused.
    pub(super) doubtful: Mutex<Vec<u64>>,
    /// Start of measuring, in nanoseconds since the start of the run; earlier publications are excluded.
    pub(super) counts_from: AtomicU64,
    /// Signals the threads to stop once all publications have been delivered.
    pub(super) is_over: AtomicBool,
}

impl RunContext<'_> {
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Polls until `holds` returns true or the run is over, and reports progress.
    pub(super) fn wait(&self, watch: &mut dyn FnMut(&SubscribeProgress), holds: impl Fn() -> bool) {
        let mut next = Instant::now() + self.settings.slice;
        while !holds() && !self.is_over() && !self.settings.stop.is_set() {
            thread::sleep(LOOK);
            if Instant::now() >= next {
                next += self.settings.slice;
                watch(&SubscribeProgress {
                    wanted: self.subscribe.streams,
                    opened: self.opened.load(Ordering::Relaxed),
                    events: self.events.load(Ordering::Relaxed),
                    published: self.newest.load(Ordering::Relaxed),
                });
            }
        }
    }
}
