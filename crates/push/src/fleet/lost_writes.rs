//! Detection of lost writes: changes that Redis has acknowledged but that never appear in the stream.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::changes::version::DocumentVersion;

/// Time after which an acknowledged write counts as lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(3);

/// The oldest acknowledged write that has not been read, and its time.
#[derive(Default)]
pub(crate) struct LostWrites(Mutex<Option<(DocumentVersion, Instant)>>);

impl LostWrites {
    /// Records an acknowledged write.
    pub(crate) fn record(&self, version: DocumentVersion) {
        let mut first = self.0.lock();
        first.get_or_insert_with(|| (version, Instant::now()));
    }

    /// Compares with the newest change in the stream; returns whether a write is overdue, once.
    pub(crate) fn is_overdue(&self, newest: DocumentVersion) -> bool {
        let mut first = self.0.lock();
        let Some((version, at)) = &*first else {
            return false;
        };
        let is_there = newest.epoch == version.epoch && newest.number >= version.number;
        let is_late = !is_there && at.elapsed() > LOSS_TIMEOUT;
        if is_there || is_late {
            *first = None;
        }
        is_late
    }

    /// Forgets the write after a full load.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_acknowledged_write_is_missed_after_a_while() {
        let version = |epoch, number| DocumentVersion { epoch, number };
        let writes = LostWrites::default();
        assert!(!writes.is_overdue(version(1, 1)));
        for (there, is_late) in [
            (version(1, 4), true),
            (version(1, 5), false),
            (version(1, 9), false),
            (version(2, 9), true),
        ] {
            writes.record(version(1, 5));
            writes.record(version(1, 7));
            assert!(!writes.is_overdue(version(1, 4)), "it may come");
            advance(LOSS_TIMEOUT + Duration::from_millis(1)).await;
            assert_eq!(writes.is_overdue(there), is_late, "{there}");
            assert!(!writes.is_overdue(version(1, 4)), "it is said once");
        }
        writes.record(version(1, 5));
        writes.forget();
        advance(2 * LOSS_TIMEOUT).await;
        assert!(!writes.is_overdue(version(1, 4)));
    }
}
