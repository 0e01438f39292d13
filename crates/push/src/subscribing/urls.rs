//! What urls stand for that somebody wants to be told of.

use std::sync::Arc;

use microcache_engine::OriginRequest;

use crate::documents::no_url::NoUrl;
use crate::name::{MAX_NAME, Pattern, Prefix, fixed_part};
use crate::subscribing::page::{News, Page, Watching};

/// What a url stands for.
pub(crate) enum Found {
    /// Documents.
    Documents(Pattern),
    /// A page of the application.
    Page(Watching),
}

/// Finds a page of the application that whoever sends a request wants to watch, by its path and query.
pub type FindPage = Arc<dyn Fn(&OriginRequest, &str) -> Result<Arc<Page>, NoPage> + Send + Sync>;

/// Why a page cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// Its route says so.
    NotAllowed,
    /// All routes do.
    NoneAllowed,
    /// Too many are.
    TooMany,
}

/// What a url stands for, where documents are under these prefixes.
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
    // Stars say nothing of pages. Who means several is told so, and who has one with a star in its url gets
    // along without; the other pages of the same browser are none the worse.
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
