//! Resolution of the URLs of a subscription.

use std::sync::Arc;

use microcache_engine::OriginRequest;

use crate::documents::url_error::UrlError;
use crate::name::{MAX_NAME, Pattern, Prefix, fixed_part};
use crate::subscribing::page::{PageStatus, PageSubscription, PageTopic};

/// The target of a subscribed URL.
pub(crate) enum UrlTarget {
    /// Documents.
    Documents(Pattern),
    /// A page of the application.
    Page(PageSubscription),
}

/// Resolves the path and query of a page; the request supplies the host and the client's address.
pub type FindPage =
    Arc<dyn Fn(&OriginRequest, &str) -> Result<Arc<PageTopic>, PageError> + Send + Sync>;

/// Error watching a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// The page's route does not allow it (`watch`).
    NotAllowed,
    /// No route allows it.
    NoneAllowed,
    /// The limit `watch_max_pages` is reached.
    TooMany,
}

/// Resolves a URL, given the prefixes of documents.
pub(crate) fn resolve(
    url: &str,
    prefixes: &[Prefix],
    find_page: impl FnOnce(&str) -> Result<Arc<PageTopic>, PageError>,
) -> Result<UrlTarget, UrlError> {
    let literal_prefix = fixed_part(url);
    let mut prefixes = prefixes.iter().map(Prefix::as_str);
    if prefixes.any(|prefix| literal_prefix.starts_with(prefix)) {
        return Pattern::parse(url)
            .map(UrlTarget::Documents)
            .map_err(|why| UrlError::new(400, format!("{url}: {why}")));
    }
    let is_target = url.starts_with('/') && url.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_target || url.contains('#') || url.len() > MAX_NAME {
        let why = format!(
            "{url} is neither a document path or pattern nor the path and query of a page, encoded as in a request"
        );
        return Err(UrlError::new(400, why));
    }
    page(url, find_page).map(UrlTarget::Page)
}

fn page(
    url: &str,
    find_page: impl FnOnce(&str) -> Result<Arc<PageTopic>, PageError>,
) -> Result<PageSubscription, UrlError> {
    // Pages do not support patterns. A page that cannot be watched is reported by an event of its own, so
    // that the other pages of the same connection still work.
    let found = if url.contains('*') {
        Err(PageError::NotAllowed)
    } else {
        find_page(url)
    };
    match found {
        Ok(page) => Ok(PageSubscription::new(page)),
        Err(PageError::NotAllowed) => {
            let page = PageTopic::new(url);
            page.publish(PageStatus::Unwatchable);
            Ok(PageSubscription::new(Arc::new(page)))
        }
        Err(PageError::NoneAllowed) => Err(UrlError::new(
            400,
            format!(
                "{url} is not a document, and no route allows pages to be watched (option `watch`)"
            ),
        )),
        Err(PageError::TooMany) => Err(UrlError::new(
            503,
            "the limit of watched pages is reached (watch_max_pages)",
        )),
    }
}
