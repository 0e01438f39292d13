//! Registration of an open socket.

use std::sync::Arc;
use std::task::{Context, Waker};

use crate::documents::Documents;
use crate::wait_list::Registration;

/// An open socket, counted until it is dropped.
pub(crate) struct OpenSocket {
    documents: Arc<Documents>,
    /// The registered waker for the shutdown.
    waker: Option<(Waker, Registration)>,
}

impl OpenSocket {
    pub(crate) fn new(documents: &Arc<Documents>) -> Self {
        documents.sockets.opened();
        Self {
            documents: Arc::clone(documents),
            waker: None,
        }
    }

    pub(crate) fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Returns whether sockets are to close; otherwise registers the task for that.
    pub(crate) fn is_closing(&mut self, cx: &Context<'_>) -> bool {
        let sockets = &self.documents.sockets;
        let known = self.waker.as_ref();
        if !known.is_some_and(|(waker, _)| waker.will_wake(cx.waker())) {
            let registration = self.waker.take().map(|(_, registration)| registration);
            let registration = sockets.register(registration, cx.waker());
            self.waker = Some((cx.waker().clone(), registration));
        }
        sockets.are_closing()
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let registration = self.waker.take().map(|(_, registration)| registration);
        self.documents.sockets.closed(registration);
    }
}
