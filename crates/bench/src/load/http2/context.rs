//! State shared by the lanes of one thread.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

use super::request::Http2Request;
use crate::load::plan::LoadPlan;
use crate::load::recorder::Recorder;
use crate::load::request_source::RequestSource;
use crate::load::timer::OneShotTimer;

/// State shared by the lanes of one thread.
pub(super) struct ThreadContext {
    pub(super) plan: Arc<LoadPlan>,
    pub(super) requests: Vec<Http2Request>,
    pub(super) source: RefCell<RequestSource>,
    pub(super) recorder: RefCell<Recorder>,
    /// Requests in flight.
    pub(super) busy: Cell<u64>,
    /// Received bytes that are not yet recorded.
    pub(super) bytes: Rc<Cell<usize>>,
    /// Open loop: held by the lane that waits for the next due request.
    pub(super) turn: Mutex<AsyncFd<OneShotTimer>>,
}
