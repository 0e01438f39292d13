//! What was asked of the application, and what it did.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Where the counters are read (GET) and set to zero (DELETE or POST); `?url=/page` for one url.
pub const COUNTERS: &str = "/_origin/counters";

/// How many urls are counted one by one. The others are counted in the totals only.
pub const MAX_COUNTED_URLS: usize = 10_000;

/// The longest url that is counted on its own.
const MAX_COUNTED_LENGTH: usize = 2048;

/// What was asked of the application, and what it did.
#[derive(Debug, Default)]
pub struct Counters(Mutex<Tally>);

/// The counts of all urls together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests for pages.
    pub requests: u64,
    /// Pages that were rendered.
    pub renders: u64,
    /// 304 answers.
    pub not_modified: u64,
    /// Answers that were made to fail.
    pub errors: u64,
    /// Pages that were made to end in the middle.
    pub truncated: u64,
    /// 503 answers because nobody was free.
    pub busy: u64,
    /// Requests that are under way.
    pub in_flight: u64,
    /// Renders that are under way.
    pub rendering: u64,
    /// The most renders that were under way at one time.
    pub max_parallel: u64,
}

#[derive(Debug, Default)]
struct Tally {
    totals: Totals,
    per_url: HashMap<String, OfUrl>,
    /// Requests for urls that are not counted one by one.
    elsewhere: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfUrl {
    requests: u64,
    renders: u64,
}

/// What becomes of a request beside a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    NotModified,
    Error,
    Truncated,
    Busy,
}

impl Counters {
    /// The counts of all urls together.
    pub fn totals(&self) -> Totals {
        self.0.lock().totals
    }

    /// Starts from zero. What is under way stays counted as such.
    pub fn reset(&self) {
        let tally = &mut *self.0.lock();
        *tally = Tally {
            totals: Totals {
                in_flight: tally.totals.in_flight,
                rendering: tally.totals.rendering,
                max_parallel: tally.totals.rendering,
                ..Totals::default()
            },
            ..Tally::default()
        };
    }

    pub(super) fn request(self: &Arc<Self>, url: &str) -> InFlight {
        let tally = &mut *self.0.lock();
        tally.totals.requests += 1;
        tally.totals.in_flight += 1;
        match tally.url(url) {
            Some(counts) => counts.requests += 1,
            None => tally.elsewhere += 1,
        }
        InFlight(Arc::clone(self))
    }

    pub(super) fn render(self: &Arc<Self>, url: &str) -> Rendering {
        let tally = &mut *self.0.lock();
        let totals = &mut tally.totals;
        totals.renders += 1;
        totals.rendering += 1;
        totals.max_parallel = totals.max_parallel.max(totals.rendering);
        if let Some(counts) = tally.url(url) {
            counts.renders += 1;
        }
        Rendering(Arc::clone(self))
    }

    pub(super) fn count(&self, event: Event) {
        let totals = &mut self.0.lock().totals;
        let counter = match event {
            Event::NotModified => &mut totals.not_modified,
            Event::Error => &mut totals.errors,
            Event::Truncated => &mut totals.truncated,
            Event::Busy => &mut totals.busy,
        };
        *counter += 1;
    }

    pub(super) fn all_as_json(&self) -> Value {
        let tally = self.0.lock();
        let per_url: serde_json::Map<String, Value> = tally
            .per_url
            .iter()
            .map(|(url, counts)| (url.clone(), counts.as_json()))
            .collect();
        let totals = tally.totals;
        json!({
            "requests": totals.requests,
            "renders": totals.renders,
            "not_modified": totals.not_modified,
            "errors": totals.errors,
            "truncated": totals.truncated,
            "busy": totals.busy,
            "in_flight": totals.in_flight,
            "rendering": totals.rendering,
            "max_parallel": totals.max_parallel,
            "urls_elsewhere": tally.elsewhere,
            "per_url": per_url,
        })
    }

    pub(super) fn url_as_json(&self, url: &str) -> Value {
        let counts = self.0.lock().per_url.get(url).copied();
        counts.unwrap_or_default().as_json()
    }
}

impl Tally {
    fn url(&mut self, url: &str) -> Option<&mut OfUrl> {
        if !self.per_url.contains_key(url) {
            if self.per_url.len() >= MAX_COUNTED_URLS || url.len() > MAX_COUNTED_LENGTH {
                return None;
            }
            self.per_url.insert(url.to_owned(), OfUrl::default());
        }
        self.per_url.get_mut(url)
    }
}

impl OfUrl {
    fn as_json(self) -> Value {
        json!({ "requests": self.requests, "renders": self.renders })
    }
}

/// A request under way.
pub(super) struct InFlight(Arc<Counters>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.lock().totals.in_flight -= 1;
    }
}

/// A render under way.
pub(super) struct Rendering(Arc<Counters>);

impl Drop for Rendering {
    fn drop(&mut self) {
        self.0.0.lock().totals.rendering -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_beyond_the_bound_are_in_the_totals_only() {
        let counters = Arc::new(Counters::default());
        for i in 0..MAX_COUNTED_URLS + 5 {
            counters.request(&format!("/{i}"));
        }
        let all = counters.all_as_json();
        assert_eq!(all["requests"], MAX_COUNTED_URLS + 5);
        assert_eq!(all["urls_elsewhere"], 5);
        assert_eq!(
            all["per_url"].as_object().map(serde_json::Map::len),
            Some(MAX_COUNTED_URLS)
        );
        assert_eq!(counters.url_as_json("/0")["requests"], 1);
    }

    #[test]
    fn a_reset_keeps_what_is_under_way() {
        let counters = Arc::new(Counters::default());
        let (request, render) = (counters.request("/"), counters.render("/"));
        counters.reset();
        let totals = counters.totals();
        assert_eq!((totals.requests, totals.renders), (0, 0));
        assert_eq!(
            (totals.in_flight, totals.rendering, totals.max_parallel),
            (1, 1, 1)
        );
        drop((request, render));
        assert_eq!(
            (counters.totals().in_flight, counters.totals().rendering),
            (0, 0)
        );
    }
}
