//! What a subscriber was told of each document while it was behind.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::name::Name;

/// Of so many it is remembered. Of others less is known than could be: they are told whole.
const MAX_TOLD: usize = 4096;

/// The last version of each. Most subscribers are not behind, and there are many.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "an empty map is 40 bytes")]
pub(crate) struct Told(Option<Box<HashMap<Name, u64, RandomState>>>);

impl Told {
    pub(crate) fn note(&mut self, name: &Name, version: u64) {
        let all = self.0.get_or_insert_default();
        if all.len() < MAX_TOLD || all.contains_key(name) {
            all.insert(Arc::clone(name), version);
        }
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        if let Some(all) = &mut self.0 {
            all.retain(|name, _| stays(name));
        }
    }

    /// The version that it was told last; zero if that is not known.
    pub(crate) fn of(&self, name: &str) -> u64 {
        let all = self.0.as_ref();
        all.and_then(|all| all.get(name))
            .copied()
            .unwrap_or_default()
    }

    /// Of all that is remembered.
    pub(crate) fn versions(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|all| all.values()).copied()
    }
}
