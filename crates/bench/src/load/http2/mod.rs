//! HTTP/2 client: one single-threaded runtime per thread, and one lane per concurrent request.

mod context;
mod counting_stream;
mod lane;
mod request;
mod slot;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;
use tokio::task::LocalSet;

use self::context::ThreadContext;
use self::request::Http2Request;
use self::slot::ConnectionSlot;
use super::error::LoadError;
use super::plan::{LoadPlan, ThreadOutcome, ThreadShare};
use super::recorder::Recorder;
use super::request_source::RequestSource;
use super::timer::OneShotTimer;

/// Interval at which the end of a slice and of the run is checked.
const ROUND: Duration = Duration::from_millis(20);

/// Runs the thread's share of the load, with `streams` concurrent requests per connection.
///
/// # Errors
///
/// [`LoadError`] if the runtime cannot be created or a request cannot be expressed in HTTP/2.
pub(super) fn run(
    plan: &Arc<LoadPlan>,
    share: ThreadShare,
    recorder: Recorder,
    streams: usize,
) -> Result<ThreadOutcome, LoadError> {
    let refused = |why: io::Error| LoadError::system("an async runtime", why);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    let _inside = runtime.enter();
    let settings = &plan.settings;
    let requests = settings.targets.iter();
    let thread = Rc::new(ThreadContext {
        plan: Arc::clone(plan),
        requests: requests
            .map(|target| Http2Request::new(target, settings))
            .collect::<Result<_, _>>()?,
        source: RefCell::new(RequestSource::new(plan, share)),
        recorder: RefCell::new(recorder),
        busy: Cell::new(0),
        bytes: Rc::default(),
        turn: Mutex::new(OneShotTimer::new().and_then(events_of).map_err(refused)?),
    });
    let tasks = LocalSet::new();
    for _ in 0..share.connections {
        let slot = Rc::new(ConnectionSlot::new(&thread));
        for _ in 0..streams {
            tasks.spawn_local(lane::run(Rc::clone(&thread), Rc::clone(&slot)));
        }
    }
    Ok(tasks.block_on(&runtime, thread.keep_time()))
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe; its precondition holds: the timer owns its descriptor and keeps it open"
)]
fn events_of(timer: OneShotTimer) -> io::Result<AsyncFd<OneShotTimer>> {
    AsyncFd::new(timer)
}

impl ThreadContext {
    /// Records slices until the run is over.
    async fn keep_time(&self) -> ThreadOutcome {
        let mut rounds = tokio::time::interval(ROUND);
        loop {
            rounds.tick().await;
            let now = Instant::now();
            let mut source = self.source.borrow_mut();
            let mut recorder = self.recorder.borrow_mut();
            let backlog = source.backlog(now);
            recorder.received(now, self.bytes.take());
            recorder.turn(now, backlog);
            source.check_end(now);
            let busy = self.busy.get();
            if source.is_over(now, busy) {
                recorder.end(backlog);
                return source.outcome(busy);
            }
        }
    }
}
