//! A client's connection, as the upstream side sees it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Mutex;

/// A client connection. Some applications authenticate a user's connection instead of each request
/// (NTLM and Negotiate, RFC 4559 §6). The connection to the origin is then dedicated to the
/// client's: it is kept here, and closed with it.
#[derive(Default)]
pub struct ClientConnection {
    /// At most one connection per upstream group, by the group's name.
    kept: Mutex<Vec<(String, Box<dyn Any + Send>)>>,
    signed_in: AtomicBool,
}

impl ClientConnection {
    /// Returns true once requests on this connection may be authenticated without a field that says
    /// so. It stays true until the end: all their responses are for that user.
    pub fn is_signed_in(&self) -> bool {
        self.signed_in.load(Ordering::Relaxed)
    }

    /// Keeps a group's connection for the client's next request.
    pub fn keep(&self, group: &str, connection: Box<dyn Any + Send>) {
        self.signed_in.store(true, Ordering::Relaxed);
        let before = self.take(group);
        self.kept.lock().push((group.to_owned(), connection));
        drop(before);
    }

    /// Takes the kept connection of a group.
    pub fn take(&self, group: &str) -> Option<Box<dyn Any + Send>> {
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(name, _)| name == group)?;
        Some(kept.swap_remove(at).1)
    }
}

impl std::fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConnection")
            .field("signed_in", &self.is_signed_in())
            .finish_non_exhaustive()
    }
}
