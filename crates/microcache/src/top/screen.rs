//! What is on the screen, and what is being typed.

use std::collections::VecDeque;
use std::time::Instant;

use serde_json::Value;

use super::feed::News;
use super::figures::{Error, Listed, Order, Rates, Route, Url, errors, routes, urls};

/// Seconds of the drawing: no terminal is wider.
const DRAWN: usize = 512;

/// What keys mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Looking,
    /// What is typed narrows the list.
    Filtering,
    /// Whether this url is to be purged.
    Confirming(String),
}

pub(super) struct Screen {
    pub(super) admin: String,
    pub(super) stats: Option<(Instant, Value)>,
    pub(super) rates: Option<Rates>,
    /// The newest last.
    pub(super) seconds: VecDeque<Rates>,
    pub(super) urls: Vec<Url>,
    pub(super) routes: Vec<Route>,
    pub(super) errors: Vec<Error>,
    /// Which of these is shown.
    pub(super) listed: Listed,
    /// Why there are no urls.
    pub(super) no_urls: Option<String>,
    /// Why nothing new comes.
    pub(super) lost: Option<String>,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The line that is marked, among those that are shown.
    pub(super) marked: usize,
    /// What became of the last purge.
    pub(super) told: Option<String>,
}

impl Screen {
    pub(super) fn new(admin: &str) -> Self {
        Self {
            admin: admin.to_owned(),
            stats: None,
            rates: None,
            seconds: VecDeque::new(),
            urls: Vec::new(),
            routes: Vec::new(),
            errors: Vec::new(),
            listed: Listed::Urls,
            no_urls: None,
            lost: None,
            order: Order::Requests,
            filter: String::new(),
            mode: Mode::Looking,
            marked: 0,
            told: None,
        }
    }

    pub(super) fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Stats(told) => self.hear_stats((now, told)),
            News::Urls(Ok(told)) => {
                // The answer to a question before the last one would be sorted otherwise.
                if told["by"] == self.order.parameter() {
                    self.keep_marked(urls(&told));
                    self.no_urls = None;
                }
            }
            News::Urls(Err(why)) => self.no_urls = Some(why),
            News::Errors(told) => self.errors = errors(&told),
            News::Lost(why) => self.lost = Some(why),
            News::Purged(what) => self.told = Some(what),
        }
    }

    fn hear_stats(&mut self, now: (Instant, Value)) {
        self.lost = None;
        self.rates = self
            .stats
            .as_ref()
            .and_then(|before| Rates::between(before, &now));
        if let Some(rates) = self.rates {
            if self.seconds.len() == DRAWN {
                self.seconds.pop_front();
            }
            self.seconds.push_back(rates);
        }
        self.routes = routes(&now.1);
        self.stats = Some(now);
    }

    /// The mark stays with its url, wherever that has gone to.
    fn keep_marked(&mut self, urls: Vec<Url>) {
        let marked = self.marked_url().map(|url| url.name.clone());
        self.urls = urls;
        if self.listed != Listed::Urls {
            return;
        }
        let place = self
            .shown()
            .position(|url| Some(&url.name) == marked.as_ref());
        self.marked = place.unwrap_or(self.marked);
        self.stay_in_the_list();
    }

    /// Has another list shown, from its beginning.
    pub(super) fn list(&mut self, listed: Listed) {
        self.listed = listed;
        self.marked = 0;
    }

    /// The urls that the filter leaves.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Url> {
        self.urls.iter().filter(|url| self.wants(&url.name))
    }

    /// The routes that it leaves.
    pub(super) fn shown_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| self.wants(&route.name))
    }

    /// The errors that it leaves.
    pub(super) fn shown_errors(&self) -> impl Iterator<Item = &Error> {
        self.errors.iter().filter(|one| {
            [&one.place, &one.reason, &one.url]
                .iter()
                .any(|text| self.wants(text))
        })
    }

    fn wants(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    pub(super) fn marked_url(&self) -> Option<&Url> {
        self.shown().nth(self.marked)
    }

    pub(super) fn stay_in_the_list(&mut self) {
        let count = match self.listed {
            Listed::Urls => self.shown().count(),
            Listed::Routes => self.shown_routes().count(),
            Listed::Errors => self.shown_errors().count(),
        };
        let last = count.saturating_sub(1);
        self.marked = self.marked.min(last);
    }
}
