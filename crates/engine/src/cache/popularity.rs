//! Entries that were requested lately: a purge may have them fetched again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use microcache_policy::{Millis, VaryNames, vary};
use microcache_store::Key;
use tokio::task::yield_now;

use super::Cache;
use super::rule::{EntryNames, RuleSubject, Scope};

/// Keys read in one batch.
const BATCH: usize = 256;
/// Status codes of pages that are worth a request: errors are not.
const MAX_STATUS: u16 = 399;

/// An entry that was requested lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopularEntry {
    /// Its key.
    pub key: Key,
    /// Request fields that select the variant, with names in lower case.
    pub fields: Vec<(String, String)>,
}

impl Cache {
    /// Returns the entries in these scopes that have answered requests, at most `most`, those with the most requests per
    /// time first, without those that were requested less than once in `recent` milliseconds. Variants that cookies or
    /// secrets select are left out.
    pub async fn popular(
        &self,
        scopes: &[Scope],
        recent: Millis,
        most: usize,
    ) -> Vec<PopularEntry> {
        let now = self.clock.now();
        let is_everything = scopes.contains(&Scope::Everything);
        let mut first = BTreeMap::new();
        for (number, object) in self.memory.entries().enumerate() {
            for (index, one) in object.variants().enumerate() {
                let held = RuleSubject::stored(object.key(), one);
                let is_in_scope = || {
                    let names = EntryNames::new(held);
                    scopes.iter().any(|scope| names.is_in(scope))
                };
                let age = now.since(one.lifetime().response_time());
                let uses = u64::from(one.uses());
                if uses > 0
                    && uses.saturating_mul(recent) >= age
                    && one.status() <= MAX_STATUS
                    && (is_everything || is_in_scope())
                    && !self.is_purged(object.key(), one)
                    && let Some(fields) = selecting_fields(one.vary(), one.selection())
                {
                    let key = Key::from(object.key());
                    let entry = PopularEntry { key, fields };
                    // An entry that was just stored is not yet known well.
                    let demand = (uses << 20) / (age / 1000 + 60);
                    first.insert((Reverse(demand), number, index), entry);
                    if first.len() > most {
                        first.pop_last();
                    }
                }
            }
            if number % BATCH == BATCH - 1 {
                yield_now().await;
            }
        }
        first.into_values().collect()
    }
}

/// The request fields of a selection besides `Accept-Encoding`; `None` if one is confidential, or not plain text.
fn selecting_fields(names: &VaryNames, selection: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    for (name, value) in vary::selected_values(names, selection) {
        let value = value?;
        if value.contains('\\') {
            return None;
        }
        if !value.is_empty() && name != "accept-encoding" {
            fields.push((name.to_owned(), value));
        }
    }
    Some(fields)
}
