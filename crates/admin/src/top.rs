//! Most requested URLs and recent errors.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use microcache_engine::clock;
use microcache_proxy::{Amount, ErrorKind, Measure, RecentError, TopUrl};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::interface::Interface;
use crate::problem::Problem;

/// Default number of results.
const SOME: usize = 20;
/// Maximum number of URLs per request.
const MOST_URLS: usize = 100;
/// Maximum number of errors per request.
const MOST_ERRORS: usize = 256;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TopUrlsQuery {
    by: TopOrder,
    limit: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecentErrorsQuery {
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TopOrder {
    #[default]
    Requests,
    Bytes,
    Misses,
    OriginTime,
}

impl TopOrder {
    const fn measure(self) -> (Measure, &'static str) {
        match self {
            Self::Requests => (Measure::Requests, "requests"),
            Self::Bytes => (Measure::Bytes, "bytes"),
            Self::Misses => (Measure::Misses, "misses"),
            Self::OriginTime => (Measure::OriginTime, "origin_time"),
        }
    }
}

/// Lists the top URLs.
pub(crate) async fn urls(
    State(interface): State<Arc<Interface>>,
    query: Result<Query<TopUrlsQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query?;
    let (measure, name) = query.by.measure();
    let top = interface
        .handle
        .top(measure, limit(query.limit, MOST_URLS)?);
    let urls: Vec<_> = top.urls.iter().map(|url| view(url, measure)).collect();
    Ok(Json(json!({
        "by": name,
        "seconds": top.millis as f64 / 1000.0,
        "urls": urls,
    })))
}

fn view(url: &TopUrl, by: Measure) -> Value {
    let [requests, bytes, misses, origin] = url
        .amounts
        .map(|amount| amount.map(|Amount { seen, .. }| seen));
    let order = url.amounts[by as usize].unwrap_or_default();
    json!({
        "url": url.url,
        "truncated": url.is_cut,
        "requests": requests,
        "bytes": bytes,
        "misses": misses,
        "origin_microseconds": origin,
        "error": order.error,
    })
}

/// Lists recent errors.
pub(crate) async fn errors(
    State(interface): State<Arc<Interface>>,
    query: Result<Query<RecentErrorsQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query?;
    let errors = interface.handle.errors(limit(query.limit, MOST_ERRORS)?);
    let errors: Vec<_> = errors.iter().map(error).collect();
    Ok(Json(json!({ "errors": errors })))
}

fn error(error: &RecentError) -> Value {
    json!({
        "kind": match error.kind {
            ErrorKind::Origin => "origin",
            ErrorKind::Answer => "answer",
        },
        "at_milliseconds": clock::date(error.at).as_millis(),
        "count": error.count,
        "route": error.route,
        "upstream": error.upstream,
        "url": error.url,
        "status": error.status,
        "reason": error.reason,
    })
}

fn limit(requested: Option<usize>, most: usize) -> Result<usize, Problem> {
    match requested {
        None => Ok(SOME),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::of_field(
            "limit",
            format!("{limit} is not between 1 and {most}"),
            format!("use at most {most}"),
        )),
    }
}
