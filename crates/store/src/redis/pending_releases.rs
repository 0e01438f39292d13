//! Pending releases of claims whose release was not confirmed, so that other processes do not wait in vain.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::tier::{EntryId, Token};

/// Maximum of pending releases; others expire on their own.
const MOST: usize = 10_000;

/// Pending releases, by token.
#[derive(Default)]
pub(super) struct PendingReleases(Mutex<HashMap<u64, EntryId>>);

impl PendingReleases {
    /// Adds a release.
    pub(super) fn add(&self, id: EntryId, token: Token) {
        let mut claims = self.0.lock();
        if claims.len() < MOST {
            claims.insert(token.0, id);
        }
    }

    /// Removes a delivered release.
    pub(super) fn delivered(&self, token: Token) {
        self.0.lock().remove(&token.0);
    }

    /// Returns the pending releases.
    pub(super) fn waiting(&self) -> Vec<(EntryId, Token)> {
        let claims = self.0.lock();
        claims
            .iter()
            .map(|(token, id)| (*id, Token(*token)))
            .collect()
    }
}
