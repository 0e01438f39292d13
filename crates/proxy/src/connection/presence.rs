//! Detection of clients that leave while they wait for a response.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::transport::ReadHalf;

/// Presence of a client.
///
/// A client that has closed its sending side may still read (RFC 9112 §9.6). One that has left altogether looks
/// the same until it answers a write with a reset. So a half-closed client counts as gone once it has waited
/// for the given time without anything having been sent to it.
#[derive(Default)]
pub(super) struct ClientPresence {
    half_closed: AtomicBool,
    endless: AtomicBool,
    /// Number of writes begun and ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Guard of a write to the client, during which the write timeout applies instead.
pub(super) struct WriteGuard<'a>(&'a AtomicU64);

impl ClientPresence {
    /// Marks the beginning of a write; the guard marks its end.
    pub(super) fn sending(&self) -> WriteGuard<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        WriteGuard(&self.ended)
    }

    fn sent(&self) -> (u64, u64) {
        let (begun, ended) = (&self.begun, &self.ended);
        (begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed))
    }

    /// Marks the response as endless: the client ends it by closing its sending side. Returns `true` if it has
    /// done so already.
    pub(super) fn mark_endless(&self) -> bool {
        self.endless.store(true, Ordering::Relaxed);
        self.half_closed.load(Ordering::Relaxed)
    }

    /// Reports that the client has closed its sending side. Resolves when it counts as gone.
    pub(super) async fn half_closed(&self, reader: &ReadHalf<'_>, time_limit: Duration) {
        self.half_closed.store(true, Ordering::Relaxed);
        if self.endless.load(Ordering::Relaxed) {
            return;
        }
        let silence = async {
            loop {
                let before = self.sent();
                sleep(time_limit).await;
                if before.0 == before.1 && before == self.sent() {
                    return;
                }
            }
        };
        tokio::select! {
            () = silence => {}
            // After a reset the client cannot read either.
            () = reader.failed() => {}
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
