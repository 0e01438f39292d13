//! Resolution of the URLs of a subscription.

use std::sync::Arc;

use microcache_engine::OriginRequest;

use crate::documents::no_url::NoUrl;
use crate::name::{MAX_NAME, Pattern, Prefix, fixed_part};
use crate::subscribing::page::{News, Page, Watching};

/// The target of a subscribed URL.
pub(crate) enum Found {
    /// Documents.
    Documents(Pattern),
    /// A page of the application.
    Page(Watching),
}

/// Resolves the path and query of a page; the request supplies the host and the client's address.
pub type FindPage = Arc<dyn Fn(&OriginRequest, &str) -> Result<Arc<Page>, NoPage> + Send + Sync>;

/// Error watching a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// The page's route does not allow it (`watch`).
    NotAllowed,
    /// No route allows it.
    NoneAllowed,
    /// The limit `watch_max_pages` is reached.
    TooMany,
}

/// Resolves a URL, given the prefixes of documents.
pub(crate) fn find(
    url: &str,
    prefixes: &[Prefix],
    find_page: impl FnOnce(&str) -> Result<Arc<Page>, NoPage>,
) -> Result<Found, NoUrl> {
    let begins_with = fixed_part(url);
    let mut prefixes = prefixes.iter().map(Prefix::as_str);
    if prefixes.any(|prefix| begins_with.starts_with(prefix)) {
        return Pattern::parse(url)
            .map(Found::Documents)
            .map_err(|why| NoUrl::new(400, format!("{url}: {why}")));
    }
    let is_target = url.starts_with('/') && url.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_target || url.contains('#') || url.len() > MAX_NAME {
        let why = format!(
            "{url} is neither the path of documents nor path and query of a page, as they stand in a request"
        );
        return Err(NoUrl::new(400, why));
    }
    page(url, find_page).map(Found::Page)
}

fn page(
    url: &str,
    find_page: impl FnOnce(&str) -> Result<Arc<Page>, NoPage>,
) -> Result<Watching, NoUrl> {
    // Pages do not support patterns. A page that cannot be watched is reported by an event of its own, so
    // that the other pages of the same connection still work.
    let found = if url.contains('*') {
        Err(NoPage::NotAllowed)
    } else {
        find_page(url)
    };
    match found {
        Ok(page) => Ok(Watching::new(page)),
        Err(NoPage::NotAllowed) => {
            let page = Page::new(url);
            page.tell(News::Unwatchable);
            Ok(Watching::new(Arc::new(page)))
        }
        Err(NoPage::NoneAllowed) => Err(NoUrl::new(
            400,
            format!("{url} is no document, and pages are not watched: see the option `watch`"),
        )),
        Err(NoPage::TooMany) => Err(NoUrl::new(
            503,
            "too many different pages are watched (watch_max_pages)",
        )),
    }
}
