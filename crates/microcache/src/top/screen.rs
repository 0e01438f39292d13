//! The state of the screen, and the text being typed.

use std::collections::VecDeque;
use std::time::Instant;

use serde_json::Value;

use super::feed::News;
use super::figures::{
    Error, ListKind, Node, Order, Rates, Route, Url, errors, nodes, routes, urls,
};

/// Seconds in the drawing; no terminal is wider.
const DRAWN: usize = 512;

/// The meaning of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// Typed text filters the list.
    Filter,
    /// The purge of this URL awaits confirmation.
    Confirm(String),
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
    pub(super) nodes: Vec<Node>,
    /// The list on the screen.
    pub(super) listed: ListKind,
    /// The reason for a missing list of URLs.
    pub(super) no_urls: Option<String>,
    /// The error of a lost connection.
    pub(super) lost: Option<String>,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The selected line, among those shown.
    pub(super) marked: usize,
    /// The outcome of the last purge, or the help of the keys.
    pub(super) message: Option<String>,
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
            nodes: Vec::new(),
            listed: ListKind::Urls,
            no_urls: None,
            lost: None,
            order: Order::Requests,
            filter: String::new(),
            mode: Mode::Browse,
            marked: 0,
            message: None,
        }
    }

    pub(super) fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Stats(answer) => self.hear_stats((now, answer)),
            News::Urls(Ok(answer)) => {
                // An answer to an earlier request has another order.
                if answer["by"] == self.order.parameter() {
                    self.keep_marked(urls(&answer));
                    self.no_urls = None;
                }
            }
            News::Urls(Err(why)) => self.no_urls = Some(why),
            News::Errors(answer) => self.errors = errors(&answer),
            News::Nodes(answer) => self.nodes = nodes(&answer),
            News::Lost(why) => self.lost = Some(why),
            News::Purged(what) => self.message = Some(what),
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

    /// Keeps the selection on its URL when the list changes.
    fn keep_marked(&mut self, urls: Vec<Url>) {
        let marked = self.marked_url().map(|url| url.name.clone());
        self.urls = urls;
        if self.listed != ListKind::Urls {
            return;
        }
        let place = self
            .shown()
            .position(|url| Some(&url.name) == marked.as_ref());
        self.marked = place.unwrap_or(self.marked);
        self.stay_in_the_list();
    }

    /// Switches to another list, at its beginning.
    pub(super) fn list(&mut self, listed: ListKind) {
        self.listed = listed;
        self.marked = 0;
    }

    /// The URLs that match the filter.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Url> {
        self.urls.iter().filter(|url| self.wants(&url.name))
    }

    /// The routes that match the filter.
    pub(super) fn shown_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| self.wants(&route.name))
    }

    /// The errors that match the filter.
    pub(super) fn shown_errors(&self) -> impl Iterator<Item = &Error> {
        self.errors.iter().filter(|one| {
            [&one.place, &one.reason, &one.url]
                .iter()
                .any(|text| self.wants(text))
        })
    }

    /// The nodes that match the filter.
    pub(super) fn shown_nodes(&self) -> impl Iterator<Item = &Node> {
        let matches = |node: &&Node| self.wants(&node.name) || self.wants(&node.version);
        self.nodes.iter().filter(matches)
    }

    fn wants(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    pub(super) fn marked_url(&self) -> Option<&Url> {
        self.shown().nth(self.marked)
    }

    pub(super) fn stay_in_the_list(&mut self) {
        let count = match self.listed {
            ListKind::Urls => self.shown().count(),
            ListKind::Routes => self.shown_routes().count(),
            ListKind::Errors => self.shown_errors().count(),
            ListKind::Nodes => self.shown_nodes().count(),
        };
        let last = count.saturating_sub(1);
        self.marked = self.marked.min(last);
    }
}
