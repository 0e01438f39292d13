//! Claims that may be this process's without its knowing: they were asked for and not answered, or
//! given back and not confirmed. Everybody would wait for somebody who brings nothing, so they are
//! taken back as soon as the server answers again.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::claims::Purpose;
use crate::tier::EntryId;

/// Remembered at a time. The ones over are forgotten, and cost others their wait.
const MOST: usize = 10_000;

/// The claims on one server that may be ours.
#[derive(Debug, Default)]
pub(super) struct Unsure {
    claims: Mutex<HashMap<EntryId, Purpose>>,
    noted: Notify,
}

impl Unsure {
    /// Notes a claim.
    pub(super) fn note(&self, id: EntryId, purpose: Purpose) {
        let mut claims = self.claims.lock();
        if claims.len() < MOST || claims.contains_key(&id) {
            // What takes a renewal back takes a fill back too.
            let known = claims.entry(id).or_insert(purpose);
            if purpose == Purpose::Renewal {
                *known = purpose;
            }
            self.noted.notify_one();
        }
    }

    /// Whether what somebody has claimed may be ours. Says so once.
    pub(super) fn take(&self, id: EntryId) -> bool {
        self.claims.lock().remove(&id).is_some()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(EntryId, Purpose)> {
        let claims = self.claims.lock();
        claims.iter().map(|(id, purpose)| (*id, *purpose)).collect()
    }

    /// Waits for one to be noted.
    pub(super) async fn noted(&self) {
        self.noted.notified().await;
    }

    /// Has whoever waits for them look again, if there are any left.
    pub(super) fn remind(&self) {
        if !self.claims.lock().is_empty() {
            self.noted.notify_one();
        }
    }
}
