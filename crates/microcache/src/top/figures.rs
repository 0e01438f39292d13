//! The figures shown: rates between two samples, and current values.

use std::cmp::Reverse;
use std::time::Instant;

use microcache_engine::Outcome;
use serde_json::Value;

use crate::operate::render::{list, number};

/// The order of the list of URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Requests,
    Bytes,
    Misses,
    OriginTime,
}

impl Order {
    pub(super) const ALL: [Self; 4] = [Self::Requests, Self::Bytes, Self::Misses, Self::OriginTime];

    /// The parameter of the admin interface.
    pub(super) const fn parameter(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Misses => "misses",
            Self::OriginTime => "origin_time",
        }
    }

    /// The heading of its column.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Misses => "misses",
            Self::OriginTime => "origin",
        }
    }

    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// The kind of list on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    Urls,
    Routes,
    Errors,
    Nodes,
}

impl ListKind {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Urls => Self::Routes,
            Self::Routes => Self::Errors,
            Self::Errors => Self::Nodes,
            Self::Nodes => Self::Urls,
        }
    }
}

/// A line of the list of routes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Route {
    pub(super) name: String,
    pub(super) requests: u64,
    /// In percent.
    pub(super) hits: Option<f64>,
    pub(super) origin: u64,
    pub(super) errors: u64,
    /// The p50 latency of hits, of other requests and of the origin, in microseconds.
    pub(super) p50: [Option<f64>; 3],
}

/// The routes of a server, those with most requests first.
pub(super) fn routes(answer: &Value) -> Vec<Route> {
    let mut routes: Vec<_> = list(&answer["routes"]).iter().map(route).collect();
    routes.sort_by_key(|route| Reverse(route.requests));
    routes
}

fn route(answer: &Value) -> Route {
    let of = |outcome: &str| number(&answer["requests"][outcome]);
    let requests = of("total");
    let stored = (of("hit") + of("stale")) as f64;
    Route {
        name: answer["name"].as_str().unwrap_or_default().to_owned(),
        requests,
        hits: (requests > 0).then(|| stored / requests as f64 * 100.0),
        origin: number(&answer["origin"]["requests"]),
        errors: of("error"),
        p50: [
            &answer["hit_microseconds"],
            &answer["wait_microseconds"],
            &answer["origin"]["first_byte_microseconds"],
        ]
        .map(|times| times["p50"].as_f64()),
    }
}

/// A line of the list of errors.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Error {
    /// In milliseconds since 1970.
    pub(super) at: u64,
    pub(super) count: u64,
    /// The upstream that failed, or the route on which a client got an error.
    pub(super) place: String,
    pub(super) reason: String,
    pub(super) url: String,
}

/// Reads the errors of an answer.
pub(super) fn errors(answer: &Value) -> Vec<Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(&answer["errors"])
        .iter()
        .map(|error| Error {
            at: number(&error["at_milliseconds"]),
            count: number(&error["count"]),
            place: text(if error["upstream"].is_string() {
                &error["upstream"]
            } else {
                &error["route"]
            }),
            reason: text(&error["reason"]),
            url: text(&error["url"]),
        })
        .collect()
}

/// A line of the list of nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) version: String,
    /// The node that answers, whether a node ends, and for how many seconds it has been away.
    pub(super) state: String,
    pub(super) is_well: bool,
    pub(super) requests_per_second: f64,
    pub(super) origin_per_second: f64,
    /// Stored responses among all since its start, in percent.
    pub(super) hits: Option<f64>,
    /// Memory of stored responses, in bytes.
    pub(super) memory: u64,
    /// Seconds for which it has lacked purges.
    pub(super) behind: Option<u64>,
}

/// Reads the nodes of an answer.
pub(super) fn nodes(answer: &Value) -> Vec<Node> {
    list(&answer["nodes"]).iter().map(node).collect()
}

fn node(answer: &Value) -> Node {
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let rate = |name: &str| answer[name].as_f64().unwrap_or_default();
    let requests = number(&answer["requests"]);
    let state = match answer["away_seconds"].as_u64() {
        Some(seconds) => format!("away {seconds} s"),
        None if answer["draining"] == true => "draining".to_owned(),
        None if answer["this"] == true => "this node".to_owned(),
        None => String::new(),
    };
    Node {
        name: format!("{} {}", text("name"), number(&answer["pid"])),
        version: text("version").to_owned(),
        state,
        is_well: answer["away_seconds"].is_null() && answer["draining"] != true,
        requests_per_second: rate("requests_per_second"),
        origin_per_second: rate("origin_per_second"),
        hits: (requests > 0).then(|| number(&answer["stored"]) as f64 / requests as f64 * 100.0),
        memory: number(&answer["memory"]["bytes"]),
        behind: answer["purges"]["behind_seconds"].as_u64(),
    }
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) clients: f64,
    pub(super) origin: f64,
    /// Events sent to subscribers, and changes of documents.
    pub(super) events: f64,
    pub(super) changes: f64,
    /// By outcome, in the order of [`Outcome::ALL`].
    pub(super) outcomes: [f64; Outcome::ALL.len()],
}

impl Rates {
    /// The rates between two samples; none across a restart, which resets the counters.
    pub(super) fn between(before: &(Instant, Value), now: &(Instant, Value)) -> Option<Self> {
        let seconds = now.0.saturating_duration_since(before.0).as_secs_f64();
        if seconds <= 0.0 || before.1["pid"] != now.1["pid"] {
            return None;
        }
        let rate =
            |of: &dyn Fn(&Value) -> u64| of(&now.1).saturating_sub(of(&before.1)) as f64 / seconds;
        Some(Self {
            clients: rate(&|answer| number(&answer["requests"]["total"])),
            origin: rate(&|answer| number(&answer["origin"]["requests"])),
            events: rate(&|answer| number(&answer["push"]["events"])),
            changes: rate(&|answer| number(&answer["push"]["changes"]["made"])),
            outcomes: Outcome::ALL
                .map(|outcome| rate(&|answer| number(&answer["requests"][outcome.as_str()]))),
        })
    }

    /// Hits and stale answers among all, in percent.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let stored = self.outcomes[0] + self.outcomes[1];
        (self.clients > 0.0).then(|| stored / self.clients * 100.0)
    }
}

/// A line of the list of urls.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Url {
    pub(super) name: String,
    /// The name is truncated, so that it cannot be purged by.
    pub(super) is_cut: bool,
    /// In the order of [`Order::ALL`]; `None` if the server no longer counts it.
    pub(super) amounts: [Option<u64>; Order::ALL.len()],
}

/// Reads the URLs of an answer.
pub(super) fn urls(answer: &Value) -> Vec<Url> {
    list(&answer["urls"])
        .iter()
        .map(|url| Url {
            name: url["url"].as_str().unwrap_or_default().to_owned(),
            is_cut: url["truncated"] == true,
            amounts: ["requests", "bytes", "misses", "origin_microseconds"]
                .map(|name| url[name].as_u64()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn rates_are_differences_and_restart_with_the_server() {
        let began = Instant::now();
        let answer = |pid: u64, total: u64, hit: u64, origin: u64| {
            json!({
                "pid": pid,
                "requests": {"total": total, "hit": hit},
                "origin": {"requests": origin},
            })
        };
        let before = (began, answer(1, 100, 90, 10));
        let later = began + Duration::from_secs(2);
        let rates = Rates::between(&before, &(later, answer(1, 300, 280, 12))).expect("rates");
        assert_eq!((rates.clients, rates.origin), (100.0, 1.0));
        assert_eq!(rates.hit_ratio(), Some(95.0));
        assert_eq!(Rates::between(&before, &(later, answer(2, 5, 5, 0))), None);
        assert_eq!(Rates::between(&before, &before), None);
        let idle = Rates::between(&before, &(later, answer(1, 100, 90, 10))).expect("rates");
        assert_eq!(idle.hit_ratio(), None);
    }
}
