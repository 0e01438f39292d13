//! Explains in plain words how the cache handled a request.

use std::time::Duration;

use http::Method;
use microcache_client::{CacheInfo, Outcome};
use microcache_policy::{Detail, invalidates};
use reqwest::Response;

use super::message::without_secrets;
use crate::cli::{Fetch, PrintedParts, Usage};

/// Formats the explanation in one line.
pub(super) fn line(
    fetch: &Fetch,
    response: &Response,
    info: Option<CacheInfo>,
    took: Duration,
) -> String {
    let status = response.status().as_u16();
    let done = match info {
        None => format!("bypass: the server answered {status}"),
        Some(info) => format!("{}: {}", info.outcome.as_str(), what(fetch, info, status)),
    };
    let url = without_secrets(response.url());
    let unchecked = if fetch.insecure && url.scheme() == "https" {
        " (no certificate was checked)"
    } else {
        ""
    };
    let elsewhere = if url == without_secrets(&fetch.url) {
        String::new()
    } else {
        format!(" (redirected to {url})")
    };
    format!("{done}, in {}{unchecked}{elsewhere}", short(took))
}

fn what(fetch: &Fetch, info: CacheInfo, status: u16) -> String {
    let age = match info.age {
        None => "stored before".to_owned(),
        Some(age) if age.is_zero() => "stored less than a second ago".to_owned(),
        Some(age) => format!("stored, and {} old", short(age)),
    };
    let place = match info.tier {
        Some("directory") => " (in the directory)",
        Some(_) => " (in a tier)",
        None => "",
    };
    let reason = why(info);
    match info.outcome {
        Outcome::Hit => {
            let fresh = match info.fresh_for {
                Some(left) if !left.is_zero() => format!(", fresh for {} more", short(left)),
                _ => String::new(),
            };
            format!("{age}{place}{fresh}; the server was not contacted")
        }
        Outcome::Stale if fetch.usage == Usage::Offline => {
            format!("{age}{place} and no longer fresh; the server was not contacted (--offline)")
        }
        Outcome::Stale => format!("{age}{place} and no longer fresh, but may be used{reason}"),
        Outcome::Validated => {
            let fresh = match info.fresh_for {
                Some(left) if !left.is_zero() => format!(", fresh for {}", short(left)),
                _ => String::new(),
            };
            format!("the server confirmed what is stored (304){fresh}")
        }
        Outcome::Miss | Outcome::Collapsed if fetch.shown == PrintedParts::Head => {
            format!("the server answered {status}{reason}")
        }
        Outcome::Miss | Outcome::Collapsed => {
            format!("the server answered {status}{}{reason}", kept(info))
        }
        Outcome::Bypass if !matches!(fetch.method, Method::GET | Method::HEAD) => {
            let method = &fetch.method;
            let ended = if invalidates(method, status) {
                ", and the stored responses of the URL are invalidated"
            } else {
                ""
            };
            format!("the server answered {status}; the cache was not used ({method}){ended}")
        }
        Outcome::Bypass if fetch.usage == Usage::NoStore => {
            format!("the server answered {status}; the cache was not used (--no-store)")
        }
        Outcome::Bypass => format!("the server answered {status}; the cache was not used{reason}"),
        Outcome::Failure => {
            let kept = if info.stored {
                kept(info)
            } else {
                String::new()
            };
            format!(
                "the server failed with {status}, and no stored response may be used instead{kept}"
            )
        }
        _ => "nothing is stored".to_owned(),
    }
}

/// Describes whether the response is stored.
fn kept(info: CacheInfo) -> String {
    if info.stored {
        format!("; it is stored, {}", fresh(info))
    } else {
        "; it is not stored".to_owned()
    }
}

/// Describes the remaining freshness lifetime.
fn fresh(info: CacheInfo) -> String {
    match info.fresh_for {
        Some(left) if !left.is_zero() => format!("fresh for {}", short(left)),
        _ => "stale at once".to_owned(),
    }
}

/// Reason, in the words of `docs/caching-rules.md`.
fn why(info: CacheInfo) -> String {
    let details = &Detail::ALL;
    let detail = info
        .why
        .and_then(|word| details.iter().find(|detail| detail.as_str() == word));
    match detail {
        Some(detail) => format!(", because {}", detail.explanation().because),
        None => String::new(),
    }
}

/// Formats a duration for humans.
pub(super) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, expected) in [
            (59, "59 s"),
            (180, "3 min"),
            (7_300, "2 h"),
            (400_000, "4 days"),
        ] {
            assert_eq!(short(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(short(Duration::from_millis(12)), "12 ms");
    }
}
