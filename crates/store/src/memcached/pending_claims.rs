//! Claims of unknown outcome: granted or released without a confirmed response. They are withdrawn when the
//! server responds again, since other processes would otherwise wait for a fill that never happens.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::claims::ClaimPurpose;
use crate::tier::EntryId;

/// Maximum of tracked claims; untracked ones merely block other processes until they expire.
const MOST: usize = 10_000;

/// Claims of unknown outcome on one server.
#[derive(Debug, Default)]
pub(super) struct PendingClaims {
    claims: Mutex<BTreeMap<EntryId, ClaimPurpose>>,
    added: Notify,
}

impl PendingClaims {
    /// Adds a claim.
    pub(super) fn add(&self, id: EntryId, purpose: ClaimPurpose) {
        let mut claims = self.claims.lock();
        if claims.len() < MOST || claims.contains_key(&id) {
            // Withdrawing a renewal also withdraws a fill.
            let known = claims.entry(id).or_insert(purpose);
            if purpose == ClaimPurpose::Renewal {
                *known = purpose;
            }
            self.added.notify_one();
        }
    }

    /// Removes a claim. Returns whether it was tracked, and thus may belong to this process.
    pub(super) fn take(&self, id: EntryId) -> bool {
        self.claims.lock().remove(&id).is_some()
    }

    /// Returns all claims.
    pub(super) fn all(&self) -> Vec<(EntryId, ClaimPurpose)> {
        let claims = self.claims.lock();
        claims.iter().map(|(id, purpose)| (*id, *purpose)).collect()
    }

    /// Waits for a claim to be added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Wakes the probe again if claims are left.
    pub(super) fn remind(&self) {
        if !self.claims.lock().is_empty() {
            self.added.notify_one();
        }
    }
}
