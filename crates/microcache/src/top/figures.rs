//! What is shown of the numbers: rates between two looks, and how things stand.

use std::cmp::Reverse;
use std::time::Instant;

use microcache_engine::Outcome;
use serde_json::Value;

use crate::operate::shown::{list, number};

/// What the urls are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Requests,
    Bytes,
    Misses,
    OriginTime,
}

impl Order {
    pub(super) const ALL: [Self; 4] = [Self::Requests, Self::Bytes, Self::Misses, Self::OriginTime];

    /// As the interface calls it.
    pub(super) const fn parameter(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Misses => "misses",
            Self::OriginTime => "origin_time",
        }
    }

    /// Over its column.
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

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Urls,
    Routes,
    Errors,
}

impl Listed {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Urls => Self::Routes,
            Self::Routes => Self::Errors,
            Self::Errors => Self::Urls,
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
    /// Medians of hits, of what clients wait for, and of the origin, in microseconds.
    pub(super) medians: [Option<f64>; 3],
}

/// The routes of a server, those with most requests first.
pub(super) fn routes(told: &Value) -> Vec<Route> {
    let mut routes: Vec<_> = list(&told["routes"]).iter().map(route).collect();
    routes.sort_by_key(|route| Reverse(route.requests));
    routes
}

fn route(told: &Value) -> Route {
    let of = |outcome: &str| number(&told["requests"][outcome]);
    let requests = of("total");
    let stored = (of("hit") + of("stale")) as f64;
    Route {
        name: told["name"].as_str().unwrap_or_default().to_owned(),
        requests,
        hits: (requests > 0).then(|| stored / requests as f64 * 100.0),
        origin: number(&told["origin"]["requests"]),
        errors: of("error"),
        medians: [
            &told["hit_microseconds"],
            &told["wait_microseconds"],
            &told["origin"]["first_byte_microseconds"],
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

/// The errors that an answer names.
pub(super) fn errors(told: &Value) -> Vec<Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list(&told["errors"])
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

/// What happens in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) clients: f64,
    pub(super) origin: f64,
    /// Events that subscribers were told, and changes of documents.
    pub(super) events: f64,
    pub(super) changes: f64,
    /// By outcome, in the order of [`Outcome::ALL`].
    pub(super) outcomes: [f64; Outcome::ALL.len()],
}

impl Rates {
    /// Between two looks. A server that was started anew begins to count anew.
    pub(super) fn between(before: &(Instant, Value), now: &(Instant, Value)) -> Option<Self> {
        let seconds = now.0.saturating_duration_since(before.0).as_secs_f64();
        if seconds <= 0.0 || before.1["pid"] != now.1["pid"] {
            return None;
        }
        let rate =
            |of: &dyn Fn(&Value) -> u64| of(&now.1).saturating_sub(of(&before.1)) as f64 / seconds;
        Some(Self {
            clients: rate(&|told| number(&told["requests"]["total"])),
            origin: rate(&|told| number(&told["origin"]["requests"])),
            events: rate(&|told| number(&told["push"]["events"])),
            changes: rate(&|told| number(&told["push"]["changes"]["made"])),
            outcomes: Outcome::ALL
                .map(|outcome| rate(&|told| number(&told["requests"][outcome.as_str()]))),
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
    /// Its name is only the beginning of it, which nothing can be purged by.
    pub(super) is_cut: bool,
    /// In the order of [`Order::ALL`]; what the server has lost count of is not known.
    pub(super) amounts: [Option<u64>; Order::ALL.len()],
}

/// The urls that an answer names.
pub(super) fn urls(told: &Value) -> Vec<Url> {
    list(&told["urls"])
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
    fn rates_are_what_was_added_since_and_start_anew_with_the_server() {
        let began = Instant::now();
        let told = |pid: u64, total: u64, hit: u64, origin: u64| {
            json!({
                "pid": pid,
                "requests": {"total": total, "hit": hit},
                "origin": {"requests": origin},
            })
        };
        let before = (began, told(1, 100, 90, 10));
        let later = began + Duration::from_secs(2);
        let rates = Rates::between(&before, &(later, told(1, 300, 280, 12))).expect("rates");
        assert_eq!((rates.clients, rates.origin), (100.0, 1.0));
        assert_eq!(rates.hit_ratio(), Some(95.0));
        assert_eq!(Rates::between(&before, &(later, told(2, 5, 5, 0))), None);
        assert_eq!(Rates::between(&before, &before), None);
        let idle = Rates::between(&before, &(later, told(1, 100, 90, 10))).expect("rates");
        assert_eq!(idle.hit_ratio(), None);
    }
}
