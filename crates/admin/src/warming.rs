//! Warming: `/v1/warm`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use http::StatusCode;
use microcache_proxy::config::Quota;
use microcache_proxy::{Handle, WarmCounts, WarmPage, WarmProgress, WarmResult, WarmSource};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::entries::variant_id;
use crate::interface::Interface;
use crate::problem::Problem;
use crate::scopes;

/// Default limit of requests.
const RATE: &str = "5/s";

/// Body of `POST /v1/warm`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmRequest {
    sitemap: Option<String>,
    #[serde(default)]
    urls: Vec<String>,
    rate: Option<String>,
}

impl WarmRequest {
    fn source(self) -> Result<(String, WarmSource), Problem> {
        match (self.sitemap, self.urls) {
            (Some(sitemap), urls) if urls.is_empty() => {
                scopes::address(&sitemap)?;
                Ok((sitemap.clone(), WarmSource::Sitemap(sitemap)))
            }
            (None, urls) if !urls.is_empty() => {
                let pages = urls.into_iter().map(WarmPage::from).collect();
                Ok(("a list".to_owned(), WarmSource::Pages(pages)))
            }
            _ => Err(Problem::of_field(
                "sitemap",
                "the request does not say what to warm",
                "set either `sitemap` or `urls`",
            )),
        }
    }

    /// Requests per second; `None` for no limit.
    fn rate(&self) -> Result<Option<f64>, Problem> {
        let rate = Quota::parse(self.rate.as_deref().unwrap_or(RATE));
        let rate = rate.map_err(|remedy| {
            Problem::of_field(
                "rate",
                "`rate` is not a number of requests per time",
                remedy,
            )
        })?;
        Ok(rate.map(|quota| quota.count as f64 / quota.seconds as f64))
    }
}

/// Starts to warm pages.
pub(crate) async fn start(
    State(interface): State<Arc<Interface>>,
    request: Result<Json<WarmRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let Json(request) = request?;
    if interface.handle.is_leaving() || interface.handle.is_handing_over() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "this process is ending, or being replaced",
            "retry on a new connection",
        ));
    }
    let rate = request.rate()?;
    let (about, source) = request.source()?;
    let started = interface.handle.warm(about, source, rate);
    let id = started.map_err(|full| {
        let remedy = "wait until one is done, or stop one by DELETE /v1/warm/ID";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, full.to_string(), remedy)
    })?;
    let progress = interface.handle.warmed(id).unwrap_or_default();
    Ok((StatusCode::ACCEPTED, Json(job(id, &progress))))
}

/// Shows the progress of a job.
pub(crate) async fn show(
    State(interface): State<Arc<Interface>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let number = u64::from_str_radix(&id, 16).ok();
    let progress = number.and_then(|id| Some((id, interface.handle.warmed(id)?)));
    let (id, progress) = progress.ok_or_else(|| {
        let detail = format!("there is no job `{}` in this process", scopes::shown(&id));
        let remedy =
            "the latest 64 are known until the process ends; start another one by POST /v1/warm";
        Problem::new(StatusCode::NOT_FOUND, detail, remedy)
    })?;
    Ok(Json(job(id, &progress)))
}

/// Stops a job.
pub(crate) async fn stop(
    State(interface): State<Arc<Interface>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    if let Ok(number) = u64::from_str_radix(&id, 16) {
        interface.handle.stop_warming(number);
    }
    show(State(interface), Path(id)).await
}

/// The totals as JSON.
pub(crate) fn totals(handle: &Handle) -> Value {
    let (jobs, counts) = handle.warm_totals();
    let mut view = by_result(counts);
    view.insert("jobs".to_owned(), json!(jobs));
    view.into()
}

fn by_result(counts: WarmCounts) -> Map<String, Value> {
    let named = WarmResult::NAMES.into_iter().zip(counts);
    named
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect()
}

fn job(id: u64, progress: &WarmProgress) -> Value {
    let (state, error) = match &progress.end {
        None => ("running", None),
        Some(Ok(())) => ("done", None),
        Some(Err(why)) => ("ended_early", Some(why)),
    };
    let reasons = progress.reasons.iter();
    let reasons: Vec<_> = reasons
        .map(|(why, (count, url))| json!({"reason": why, "count": count, "url": url}))
        .collect();
    let mut view = json!({
        "id": variant_id(id),
        "state": state,
        "error": error,
        "urls": progress.urls,
        "reasons": reasons,
        "seconds": progress.took.as_secs_f64(),
    });
    for (name, count) in by_result(progress.counts) {
        view[name] = count;
    }
    view
}
