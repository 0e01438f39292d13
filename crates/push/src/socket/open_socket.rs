//! Registration of an open socket.

use std::sync::Arc;
use std::task::Context;

use crate::documents::Documents;
use crate::wait_list::Registration;

/// An open socket, counted until it is dropped.
pub(crate) struct OpenSocket {
    documents: Arc<Documents>,
    /// The registration for the shutdown.
    registration: Option<Registration>,
    /// True if it has the waker of the task that polls the socket.
    is_current: bool,
}

impl OpenSocket {
    pub(crate) fn new(documents: &Arc<Documents>) -> Self {
        documents.sockets.opened();
        Self {
            documents: Arc::clone(documents),
            registration: None,
            is_current: false,
        }
    }

    pub(crate) fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Forgets the waker of the last poll, since another one replaces it.
    pub(crate) const fn forget_waker(&mut self) {
        self.is_current = false;
    }

    /// Returns whether sockets are to close; otherwise registers the task for that.
    pub(crate) fn is_closing(&mut self, cx: &Context<'_>) -> bool {
        let sockets = &self.documents.sockets;
        if !self.is_current {
            let registration = sockets.register(self.registration, cx.waker());
            self.registration = Some(registration);
            self.is_current = true;
        }
        sockets.are_closing()
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.documents.sockets.closed(self.registration);
    }
}
