//! The origin server of a request, for the access log.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The origin server that a request was sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisitedServer {
    /// Its host and port.
    pub name: String,
    /// Its time to first byte, once it has answered.
    pub first_byte: Option<Duration>,
}

/// The last server that a request was sent to. Travels with the request to the upstream group, which fills it in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerVisit(Arc<Mutex<Option<VisitedServer>>>);

impl ServerVisit {
    /// Records that a server is sent the request.
    pub(crate) fn sent(&self, server: &impl Display) {
        *self.0.lock() = Some(VisitedServer {
            name: server.to_string(),
            first_byte: None,
        });
    }

    /// Records its time to first byte.
    pub(crate) fn answered(&self, took: Duration) {
        if let Some(server) = &mut *self.0.lock() {
            server.first_byte = Some(took);
        }
    }

    /// Returns the server.
    pub(crate) fn server(&self) -> Option<VisitedServer> {
        self.0.lock().clone()
    }
}
