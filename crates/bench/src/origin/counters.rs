//! Request and render counters of the origin.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Path of the counters: GET returns them (`?url=/page` for one URL), DELETE or POST resets them.
pub const COUNTERS: &str = "/_origin/counters";

/// Maximum number of URLs with counters of their own; others only add to the totals.
pub const MAX_COUNTED_URLS: usize = 10_000;

/// Maximum length of such a URL, in bytes.
const MAX_COUNTED_LENGTH: usize = 2048;

/// Request and render counters of the origin.
#[derive(Debug, Default)]
pub struct OriginCounters(Mutex<CounterState>);

/// Totals over all URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginTotals {
    /// Requests for pages.
    pub requests: u64,
    /// Rendered pages.
    pub renders: u64,
    /// Responses with status 304.
    pub not_modified: u64,
    /// Simulated errors.
    pub errors: u64,
    /// Truncated pages.
    pub truncated: u64,
    /// Responses with status 503 because the queue was full.
    pub busy: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Renders in progress.
    pub rendering: u64,
    /// Maximum of concurrent renders.
    pub max_parallel: u64,
}

#[derive(Debug, Default)]
struct CounterState {
    totals: OriginTotals,
    per_url: HashMap<String, UrlCounters>,
    /// Requests for URLs without counters of their own.
    elsewhere: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct UrlCounters {
    requests: u64,
    renders: u64,
}

/// Outcome of a request other than a rendered page.
#[derive(Clone, Copy, Debug)]
pub(super) enum OriginEvent {
    NotModified,
    Error,
    Truncated,
    Busy,
}

impl OriginCounters {
    /// Returns the totals over all URLs.
    pub fn totals(&self) -> OriginTotals {
        self.0.lock().totals
    }

    /// Resets the counters. Requests and renders in progress stay counted.
    pub fn reset(&self) {
        let tally = &mut *self.0.lock();
        *tally = CounterState {
            totals: OriginTotals {
                in_flight: tally.totals.in_flight,
                rendering: tally.totals.rendering,
                max_parallel: tally.totals.rendering,
                ..OriginTotals::default()
            },
            ..CounterState::default()
        };
    }

    pub(super) fn request(self: &Arc<Self>, url: &str) -> RequestGuard {
        let tally = &mut *self.0.lock();
        tally.totals.requests += 1;
        tally.totals.in_flight += 1;
        match tally.url(url) {
            Some(counts) => counts.requests += 1,
            None => tally.elsewhere += 1,
        }
        RequestGuard(Arc::clone(self))
    }

    pub(super) fn render(self: &Arc<Self>, url: &str) -> RenderGuard {
        let tally = &mut *self.0.lock();
        let totals = &mut tally.totals;
        totals.renders += 1;
        totals.rendering += 1;
        totals.max_parallel = totals.max_parallel.max(totals.rendering);
        if let Some(counts) = tally.url(url) {
            counts.renders += 1;
        }
        RenderGuard(Arc::clone(self))
    }

    pub(super) fn count(&self, event: OriginEvent) {
        let totals = &mut self.0.lock().totals;
        let counter = match event {
            OriginEvent::NotModified => &mut totals.not_modified,
            OriginEvent::Error => &mut totals.errors,
            OriginEvent::Truncated => &mut totals.truncated,
            OriginEvent::Busy => &mut totals.busy,
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

impl CounterState {
    fn url(&mut self, url: &str) -> Option<&mut UrlCounters> {
        if !self.per_url.contains_key(url) {
            if self.per_url.len() >= MAX_COUNTED_URLS || url.len() > MAX_COUNTED_LENGTH {
                return None;
            }
            self.per_url.insert(url.to_owned(), UrlCounters::default());
        }
        self.per_url.get_mut(url)
    }
}

impl UrlCounters {
    fn as_json(self) -> Value {
        json!({ "requests": self.requests, "renders": self.renders })
    }
}

/// Guard of a request in flight.
pub(super) struct RequestGuard(Arc<OriginCounters>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.0.lock().totals.in_flight -= 1;
    }
}

/// Guard of a render in progress.
pub(super) struct RenderGuard(Arc<OriginCounters>);

impl Drop for RenderGuard {
    fn drop(&mut self) {
        self.0.0.lock().totals.rendering -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_beyond_the_bound_are_in_the_totals_only() {
        let counters = Arc::new(OriginCounters::default());
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
    fn a_reset_keeps_requests_in_progress() {
        let counters = Arc::new(OriginCounters::default());
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
