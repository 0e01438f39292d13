//! The tags in an origin's page, before its elements are read.

use bytes::Bytes;
use microcache_policy::edge::{Cut, Cutter, FragmentPaths, Include, MOST_FRAGMENTS};

use super::guard::Guard;

/// The request for a page.
#[derive(Clone, Debug)]
pub(super) struct PageUrl {
    pub(super) host: Bytes,
    pub(super) target: Bytes,
}

/// A fragment that the browser fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserInclude {
    pub(super) source: String,
    pub(super) alternative: Option<String>,
    /// Bytes of the page, shown until then.
    pub(super) fallback: Vec<u8>,
}

/// A page whose tags lose their meaning, keep it, or become elements.
pub(super) enum TagReader {
    /// Nothing is replaced.
    Guarded(Guard),
    /// Each include becomes an element with its number.
    Replaced(Box<TagReplacer>),
}

/// Replaces the tags of a page by elements.
pub(super) struct TagReplacer {
    cutter: Cutter,
    guard: Guard,
    /// Bytes that have to be given to the cutter again.
    input: Vec<u8>,
    page: PageUrl,
    fragments: FragmentPaths,
}

impl TagReader {
    /// Tags become elements for the browser.
    pub(super) fn replaced(page: PageUrl, fragments: FragmentPaths) -> Self {
        Self::Replaced(Box::new(TagReplacer {
            cutter: Cutter::default(),
            guard: Guard::of_elements(),
            input: Vec::new(),
            page,
            fragments,
        }))
    }

    /// Returns the next bytes of the page. What its includes ask for is appended to `includes`. `is_last`: no bytes
    /// follow.
    pub(super) fn read(
        &mut self,
        data: &[u8],
        is_last: bool,
        includes: &mut Vec<BrowserInclude>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len());
        let guard = match self {
            Self::Guarded(guard) => {
                guard.push(data, &mut out);
                guard
            }
            Self::Replaced(replacer) => {
                replacer.push(data, is_last, includes, &mut out);
                &mut replacer.guard
            }
        };
        if is_last {
            guard.flush(&mut out);
        }
        out
    }
}

impl TagReplacer {
    fn push(
        &mut self,
        data: &[u8],
        is_last: bool,
        includes: &mut Vec<BrowserInclude>,
        out: &mut Vec<u8>,
    ) {
        self.input.extend_from_slice(data);
        let mut at = 0;
        while at < self.input.len() {
            let rest = &self.input[at..];
            at += match self.cutter.next(rest, is_last) {
                Cut::Text(length) => {
                    self.guard.push(&rest[..length], out);
                    length
                }
                Cut::Omitted { length, .. } => length,
                Cut::Include { length, include } => {
                    if let Some(include) = self.for_browser(&include)
                        && includes.len() < MOST_FRAGMENTS
                    {
                        self.guard.flush(out);
                        // Without quotes: in an attribute or a script it stays text.
                        let number = includes.len();
                        let element =
                            format!("<microcache-include slot={number}></microcache-include>");
                        out.extend_from_slice(element.as_bytes());
                        includes.push(include);
                    }
                    length
                }
                Cut::Incomplete => break,
            };
        }
        self.input.drain(..at);
    }

    /// Returns an include of allowed fragments.
    fn for_browser(&self, include: &Include) -> Option<BrowserInclude> {
        let target = |url: &[u8]| {
            let PageUrl { host, target } = &self.page;
            let target = self.fragments.target(url, host, target).ok()?;
            String::from_utf8(target).ok()
        };
        Some(BrowserInclude {
            source: target(include.source())?,
            alternative: include.alternative().and_then(target),
            fallback: guarded(include.fallback()),
        })
    }
}

/// Returns a text of the page without elements for the browser: it has not been read with the page around it.
fn guarded(text: &[u8]) -> Vec<u8> {
    let (mut guard, mut out) = (Guard::of_elements(), Vec::new());
    guard.push(text, &mut out);
    guard.flush(&mut out);
    out
}
