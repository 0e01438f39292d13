//! HTTP/2: as many lanes as there are requests at a time, on a runtime a thread.

mod counted;
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

use self::request::Request;
use self::slot::Slot;
use super::error::LoadError;
use super::plan::{Ended, Plan, Share};
use super::recorder::Recorder;
use super::source::Source;
use super::timer::Timer;

/// How often the clock is looked at for slices and the end.
const ROUND: Duration = Duration::from_millis(20);

/// What the lanes of one thread share.
struct Thread {
    plan: Arc<Plan>,
    requests: Vec<Request>,
    source: RefCell<Source>,
    recorder: RefCell<Recorder>,
    /// Requests under way.
    busy: Cell<u64>,
    /// Bytes that have come and are not recorded yet.
    bytes: Rc<Cell<usize>>,
    /// In an open loop: one lane at a time waits for the next request to be due.
    turn: Mutex<AsyncFd<Timer>>,
}

/// Makes the thread's share of the load.
pub(super) fn run(
    plan: &Arc<Plan>,
    share: Share,
    recorder: Recorder,
    streams: usize,
) -> Result<Ended, LoadError> {
    let refused = |why| LoadError::System {
        what: "a runtime",
        why,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    let _inside = runtime.enter();
    let settings = &plan.settings;
    let requests = settings.targets.iter();
    let thread = Rc::new(Thread {
        plan: Arc::clone(plan),
        requests: requests
            .map(|target| Request::new(target, settings))
            .collect::<Result<_, _>>()?,
        source: RefCell::new(Source::new(plan, share)),
        recorder: RefCell::new(recorder),
        busy: Cell::new(0),
        bytes: Rc::default(),
        turn: Mutex::new(Timer::new().and_then(events_of).map_err(refused)?),
    });
    let tasks = LocalSet::new();
    for _ in 0..share.connections {
        let slot = Rc::new(Slot::new(&thread));
        for _ in 0..streams {
            tasks.spawn_local(lane::run(Rc::clone(&thread), Rc::clone(&slot)));
        }
    }
    Ok(tasks.block_on(&runtime, thread.keep_time()))
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; what it asks for holds: the timer owns its descriptor and keeps it open"
)]
fn events_of(timer: Timer) -> io::Result<AsyncFd<Timer>> {
    AsyncFd::new(timer)
}

impl Thread {
    /// Ends with the run.
    async fn keep_time(&self) -> Ended {
        let mut rounds = tokio::time::interval(ROUND);
        loop {
            rounds.tick().await;
            let now = Instant::now();
            let mut source = self.source.borrow_mut();
            let mut recorder = self.recorder.borrow_mut();
            let backlog = source.backlog(now);
            recorder.received(now, self.bytes.take());
            recorder.turn(now, backlog);
            source.look_for_end(now);
            let busy = self.busy.get();
            if source.is_over(now, busy) {
                recorder.end(backlog);
                return source.ended(busy);
            }
        }
    }
}
