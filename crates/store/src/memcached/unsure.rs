//! Claims whose answer never came. The server may have given them all the same, when it was awake
//! again, and then everybody would wait for somebody who does not know.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tier::EntryId;

/// Remembered at a time. Beyond it the ones over are forgotten, and cost others their wait.
const MOST: usize = 10_000;

/// The claims of one server that may be ours, and until when.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<HashMap<EntryId, Instant>>);

impl Unsure {
    /// Notes a claim that was asked for and not answered.
    pub(super) fn note(&self, id: EntryId, hold: Duration) {
        let now = Instant::now();
        let mut claims = self.0.lock();
        if claims.len() >= MOST {
            claims.retain(|_, until| *until > now);
        }
        if claims.len() < MOST {
            // The server counts from when it wakes, and in whole seconds.
            claims.insert(id, now + hold * 2 + Duration::from_secs(2));
        }
    }

    /// Whether what somebody has claimed may be what was asked for here. Says so once.
    pub(super) fn take(&self, id: EntryId) -> bool {
        let until = self.0.lock().remove(&id);
        until.is_some_and(|until| Instant::now() < until)
    }
}
