//! Whether a client is still there while it waits for its answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::transport::ReadHalf;

/// What is known of a client's presence.
///
/// A client that has closed its sending side may still read: RFC 9112 §9.6 lets it. But one that
/// has left altogether looks the same until something is sent to it and is answered with a reset.
/// So it is taken for gone when it has waited for so long without anything having been sent to it.
#[derive(Default)]
pub(super) struct Watch {
    half_closed: AtomicBool,
    endless: AtomicBool,
    /// How often sending began, and how often it ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// As long as it lives, bytes are being sent; for those there is another time-out.
pub(super) struct Sending<'a>(&'a AtomicU64);

impl Watch {
    /// Something is sent to the client from now on.
    pub(super) fn sending(&self) -> Sending<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Sending(&self.ended)
    }

    fn sent(&self) -> (u64, u64) {
        let (begun, ended) = (&self.begun, &self.ended);
        (begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed))
    }

    /// The answer is a stream without an end, and only the client can end it: by closing its
    /// sending side, if it does nothing else. Says whether it has done so already.
    pub(super) fn has_no_end(&self) -> bool {
        self.endless.store(true, Ordering::Relaxed);
        self.half_closed.load(Ordering::Relaxed)
    }

    /// The client has closed its sending side. Resolves when it is taken for gone.
    pub(super) async fn half_closed(&self, reader: &ReadHalf<'_>, patience: Duration) {
        self.half_closed.store(true, Ordering::Relaxed);
        if self.endless.load(Ordering::Relaxed) {
            return;
        }
        let silence = async {
            loop {
                let before = self.sent();
                sleep(patience).await;
                if before.0 == before.1 && before == self.sent() {
                    return;
                }
            }
        };
        tokio::select! {
            () = silence => {}
            // A reset: whatever the client has left of the connection, it is nothing.
            () = reader.failed() => {}
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
