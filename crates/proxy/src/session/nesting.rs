//! Fragments within fragments of a page, and their bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use microcache_policy::edge::MOST_FRAGMENTS;

/// The deepest fragment: a page's own are at depth 1.
const DEEPEST: u8 = 3;
/// The most bytes of all fragments of a page that are held until their turn, in addition to those in memory anyway.
const MOST_HELD: usize = 4 << 20;

/// The place of a fragment's request below the visitor's.
#[derive(Clone, Debug)]
pub(super) struct Nesting {
    depth: u8,
    budget: Arc<PageBudget>,
}

/// The fragments and bytes that are left to a page and all pages within it.
#[derive(Debug)]
struct PageBudget {
    fragments: AtomicUsize,
    bytes: AtomicUsize,
}

impl Nesting {
    /// The place of the fragments of a page at this place; `None` for a visitor's own.
    pub(super) fn below(page: Option<&Self>) -> Self {
        match page {
            Some(page) => Self {
                depth: page.depth + 1,
                budget: Arc::clone(&page.budget),
            },
            None => Self {
                depth: 1,
                budget: Arc::new(PageBudget {
                    fragments: AtomicUsize::new(MOST_FRAGMENTS),
                    bytes: AtomicUsize::new(MOST_HELD),
                }),
            },
        }
    }

    /// Returns true if another fragment may be asked for.
    pub(super) fn takes_fragment(&self) -> bool {
        self.depth <= DEEPEST && take(&self.budget.fragments, 1)
    }

    /// Returns true if so many more bytes may be held.
    pub(super) fn takes_bytes(&self, bytes: usize) -> bool {
        take(&self.budget.bytes, bytes)
    }
}

fn take(left: &AtomicUsize, amount: usize) -> bool {
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(amount)
    });
    taken.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_and_all_pages_within_it_share_their_bounds() {
        let page = Nesting::below(None);
        let inner = Nesting::below(Some(&page));
        let deepest = Nesting::below(Some(&inner));
        assert!((0..MOST_FRAGMENTS).all(|number| {
            let place = [&page, &inner, &deepest][number % 3];
            place.takes_fragment()
        }));
        assert!(!page.takes_fragment() && !deepest.takes_fragment());
        assert!(inner.takes_bytes(MOST_HELD - 1) && page.takes_bytes(1));
        assert!(!deepest.takes_bytes(1) && page.takes_bytes(0));
    }

    #[test]
    fn fragments_are_nested_three_deep() {
        let mut place = Nesting::below(None);
        for _ in 1..DEEPEST {
            place = Nesting::below(Some(&place));
        }
        assert!(place.takes_fragment());
        assert!(!Nesting::below(Some(&place)).takes_fragment());
    }
}
