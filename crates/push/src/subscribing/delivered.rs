//! The versions delivered to a subscriber that is catching up.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::name::DocumentName;

/// Documents tracked per subscriber. Others get full snapshots instead of deltas.
const MAX_TRACKED: usize = 4096;

/// The last delivered version of each document. Empty for subscribers that are up to date, which are most.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "an empty map is 40 bytes")]
pub(crate) struct DeliveredVersions(Option<Box<HashMap<DocumentName, u64, RandomState>>>);

impl DeliveredVersions {
    pub(crate) fn record(&mut self, name: &DocumentName, version: u64) {
        let all = self.0.get_or_insert_default();
        if all.len() < MAX_TRACKED || all.contains_key(name) {
            all.insert(Arc::clone(name), version);
        }
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        if let Some(all) = &mut self.0 {
            all.retain(|name, _| stays(name));
        }
    }

    /// Returns the last delivered version of a document; zero if unknown.
    pub(crate) fn version_of(&self, name: &str) -> u64 {
        let all = self.0.as_ref();
        all.and_then(|all| all.get(name))
            .copied()
            .unwrap_or_default()
    }

    /// Iterates over the versions of all tracked documents.
    pub(crate) fn versions(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flat_map(|all| all.values()).copied()
    }
}
