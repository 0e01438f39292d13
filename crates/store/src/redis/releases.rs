//! Claims that were given back and are still there, as far as anybody knows: the server did not
//! answer. Others wait for them, so they are given back again.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::tier::{EntryId, Token};

/// Remembered at a time. The ones over are forgotten, and cost others their wait.
const MOST: usize = 10_000;

/// Claims to be given back, by their tokens.
#[derive(Default)]
pub(super) struct Releases(Mutex<HashMap<u64, EntryId>>);

impl Releases {
    /// Remembers one.
    pub(super) fn add(&self, id: EntryId, token: Token) {
        let mut claims = self.0.lock();
        if claims.len() < MOST {
            claims.insert(token.0, id);
        }
    }

    /// Forgets one.
    pub(super) fn delivered(&self, token: Token) {
        self.0.lock().remove(&token.0);
    }

    /// Those that are remembered now.
    pub(super) fn waiting(&self) -> Vec<(EntryId, Token)> {
        let claims = self.0.lock();
        claims
            .iter()
            .map(|(token, id)| (*id, Token(*token)))
            .collect()
    }
}
