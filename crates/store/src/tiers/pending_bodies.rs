//! Keys of spooled bodies that are complete but not yet stored.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::tier::EntryId;

/// Time limit for a lookup to wait for a complete body of its key that is not yet stored: about as long as a
/// slow disk read. Afterwards the lookup uses what is there.
const ENDING_WAIT: Duration = Duration::from_millis(250);

/// Keys of bodies that are complete but not yet stored; their number is bounded by that of concurrent
/// spools.
#[derive(Debug, Default)]
pub(super) struct PendingBodies {
    ids: Mutex<Vec<EntryId>>,
    fewer: Notify,
}

/// Registration of such a key, removed on drop.
pub(super) struct PendingBody {
    endings: Arc<PendingBodies>,
    id: EntryId,
}

impl PendingBodies {
    pub(super) fn register(endings: &Arc<Self>, id: EntryId) -> PendingBody {
        endings.ids.lock().push(id);
        PendingBody {
            endings: Arc::clone(endings),
            id,
        }
    }

    /// Waits until no body of this key is pending, for at most [`ENDING_WAIT`].
    pub(super) async fn wait_for(&self, id: EntryId) {
        let _ = timeout(ENDING_WAIT, self.wait_until(|ids| !ids.contains(&id))).await;
    }

    /// Waits until no body is pending.
    pub(super) async fn wait_for_all(&self) {
        self.wait_until(<[EntryId]>::is_empty).await;
    }

    async fn wait_until(&self, is_over: impl Fn(&[EntryId]) -> bool) {
        loop {
            let fewer = self.fewer.notified();
            if is_over(&self.ids.lock()) {
                return;
            }
            fewer.await;
        }
    }
}

impl Drop for PendingBody {
    fn drop(&mut self) {
        let mut ids = self.endings.ids.lock();
        if let Some(at) = ids.iter().position(|id| *id == self.id) {
            ids.swap_remove(at);
        }
        drop(ids);
        self.endings.fewer.notify_waiters();
    }
}
