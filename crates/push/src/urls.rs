//! What urls stand for that somebody wants to be told of.

use std::sync::Arc;

use microcache_engine::OriginResponse;

use crate::answer;
use crate::name::{MAX_NAME, Pattern, Prefix, fixed_part};
use crate::page::{News, Page, Watching};
use crate::watch::NoPage;

/// The most urls of one subscription, and how many of them may have a star.
pub(crate) const MAX_URLS: usize = 100;
pub(crate) const MAX_STARS: usize = 8;

/// What a url stands for.
pub(crate) enum Found {
    /// Documents.
    Documents(Pattern),
    /// A page of the application.
    Page(Watching),
}

/// Why it stands for nothing that can be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoUrl {
    pub(crate) status: u16,
    pub(crate) why: String,
}

impl NoUrl {
    pub(crate) fn new(status: u16, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }

    /// What is longer names nothing, and is not repeated.
    pub(crate) fn too_long() -> Self {
        Self::new(400, format!("a url has {MAX_NAME} bytes at most"))
    }

    /// There are bounds of each subscription.
    pub(crate) fn too_many() -> Self {
        Self::new(400, format!("one subscription has {MAX_URLS} urls at most"))
    }

    /// And of the dearer ones.
    pub(crate) fn too_many_stars() -> Self {
        let why =
            format!("one subscription has {MAX_STARS} urls with a `*` at most, or with braces");
        Self::new(400, why)
    }

    /// The same as an answer.
    pub(crate) fn answer(self) -> OriginResponse {
        let mut answer = answer::problem(self.status, self.why);
        match self.status {
            401 => {
                answer.fields.push("WWW-Authenticate", "Bearer");
                answer
            }
            503 => answer::later(answer),
            _ => answer,
        }
    }
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
