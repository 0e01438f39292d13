//! The state of a server that survives reloads: draining, and the handover to another process.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use microcache_policy::Time;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::handover::HandoverChannel;
use super::maintenance::{Maintenance, MaintenanceSwitch};
use super::predecessor::Predecessor;

/// Progress of a server towards its end.
#[derive(Default)]
pub(crate) struct Lifecycle {
    /// Shutting down: readiness fails, and each response closes its connection.
    leaving: AtomicBool,
    /// Maintenance mode.
    pub(crate) maintenance: MaintenanceSwitch,
    /// Time when the server stopped accepting, in milliseconds; 0 before.
    draining: AtomicU64,
    stop: Notify,
    /// Listening sockets with their labels, for a handover.
    sockets: Mutex<Vec<(String, OwnedFd)>>,
    /// A handover is in progress, or complete.
    handing_over: AtomicBool,
    /// Line to the successor; closing it reports the end of this process.
    successor: Mutex<Option<Arc<HandoverChannel>>>,
    replaced: watch::Sender<bool>,
    /// The previous process, while it drains.
    pub(crate) predecessor: Arc<Predecessor>,
}

impl Lifecycle {
    /// Returns true if the server is shutting down: it is not ready, and closes each connection after its
    /// next response. It may still accept.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Time since which nothing is accepted, if the server drains.
    pub(crate) fn draining_since(&self) -> Option<Time> {
        let since = self.draining.load(Ordering::Relaxed);
        (since > 0).then(|| Time::from_millis(since))
    }

    /// Stops accepting, and closes the registered sockets.
    pub(crate) fn drain(&self, now: Time) {
        self.leave();
        self.draining
            .store(now.as_millis().max(1), Ordering::Relaxed);
        self.sockets.lock().clear();
    }

    /// Registers a listening socket.
    pub(crate) fn listens(&self, label: String, socket: OwnedFd) {
        self.sockets.lock().push((label, socket));
    }

    /// Copies of the listening sockets.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let sockets = self.sockets.lock();
        let copy = |(label, socket): &(String, OwnedFd)| Ok((label.clone(), socket.try_clone()?));
        sockets.iter().map(copy).collect()
    }

    /// Refuses purges from now on, because the successor would miss them.
    pub(crate) fn begin_handover(&self) {
        self.handing_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end_handover(&self) {
        self.handing_over.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_handing_over(&self) -> bool {
        self.handing_over.load(Ordering::SeqCst)
    }

    /// Switches maintenance mode on or off. Returns `false` during a handover, when the successor would miss it.
    pub(crate) fn maintain(&self, mode: Option<Maintenance>) -> bool {
        self.maintenance.set_unless(mode, || self.is_handing_over())
    }

    /// Completes a handover, and stops this process.
    pub(crate) fn hand_over(&self, successor: Arc<HandoverChannel>) {
        *self.successor.lock() = Some(successor);
        self.replaced.send_replace(true);
        self.ask_to_stop();
    }

    /// Returns true if another process has taken over.
    pub(crate) fn is_replaced(&self) -> bool {
        *self.replaced.borrow()
    }

    /// Completes when another process has taken over.
    pub(crate) async fn replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        if replaced.wait_for(|&replaced| replaced).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Stops the server, as a signal does.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.notify_one();
    }

    /// Completes when a stop is requested.
    pub(crate) async fn stop_requested(&self) {
        self.stop.notified().await;
    }
}
