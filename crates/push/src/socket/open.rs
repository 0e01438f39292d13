//! Registration of an open socket.

use std::sync::Arc;
use std::task::{Context, Waker};

use crate::documents::Documents;
use crate::waiting::Seat;

/// An open socket, counted until it is dropped.
pub(crate) struct Open {
    documents: Arc<Documents>,
    /// The registered waker for the shutdown.
    waker: Option<(Waker, Seat)>,
}

impl Open {
    pub(crate) fn new(documents: &Arc<Documents>) -> Self {
        documents.sockets.enter();
        Self {
            documents: Arc::clone(documents),
            waker: None,
        }
    }

    pub(crate) fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Returns whether sockets are to close; otherwise registers the task for that.
    pub(crate) fn is_ending(&mut self, cx: &Context<'_>) -> bool {
        let sockets = &self.documents.sockets;
        let known = self.waker.as_ref();
        if !known.is_some_and(|(waker, _)| waker.will_wake(cx.waker())) {
            let seat = self.waker.take().map(|(_, seat)| seat);
            let seat = sockets.wait(seat, cx.waker());
            self.waker = Some((cx.waker().clone(), seat));
        }
        sockets.are_ending()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let seat = self.waker.take().map(|(_, seat)| seat);
        self.documents.sockets.leave(seat);
    }
}
