//! Pages that visitors have requested lately.

use microcache_engine::cache::{Cache, Scope};
use microcache_policy::{Millis, key};

use super::visits::WarmPage;

/// Limit of pages that are fetched again.
pub(super) const MAX_PAGES: usize = 1000;
/// The longest time between two requests for a page, on average, in milliseconds.
const RECENT: Millis = 3_600_000;

/// Returns the pages in these scopes that were requested lately, the most requested first.
pub(crate) async fn popular(cache: &Cache, scopes: &[Scope]) -> Vec<WarmPage> {
    let entries = cache.popular(scopes, RECENT, MAX_PAGES).await.into_iter();
    let pages = entries.filter_map(|entry| {
        let url = key::url_text(&entry.key)?;
        let fields = entry.fields;
        Some(WarmPage { url, fields })
    });
    pages.collect()
}
