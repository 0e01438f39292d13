//! Maintenance mode: `/v1/maintenance`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use http::StatusCode;
use microcache_proxy::config::Cidr;
use microcache_proxy::{Handle, MAX_ALLOWED, Maintenance};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::interface::Interface;
use crate::problem::Problem;

/// Seconds in `Retry-After` unless the request says otherwise.
const RETRY_AFTER: u32 = 60;

/// Request to switch it on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MaintenanceRequest {
    /// Addresses or blocks of clients that are served as usual.
    allow: Vec<String>,
    retry_after: u32,
    keep_cached: bool,
}

impl Default for MaintenanceRequest {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            retry_after: RETRY_AFTER,
            keep_cached: false,
        }
    }
}

impl MaintenanceRequest {
    fn mode(&self) -> Result<Maintenance, Problem> {
        if self.allow.len() > MAX_ALLOWED {
            let detail = format!("more than {MAX_ALLOWED} addresses are listed");
            let remedy = "list blocks, or set `maintenance_allow` in the configuration";
            return Err(Problem::of_field("allow", detail, remedy));
        }
        let block = |text: &String| {
            let wrong =
                |remedy: String| Problem::of_field("allow", format!("cannot use `{text}`"), remedy);
            text.parse::<Cidr>().map_err(wrong)
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Maintenance {
            since: since.unwrap_or_default().as_secs(),
            allow: self.allow.iter().map(block).collect::<Result<_, _>>()?,
            retry_after: self.retry_after,
            keep_cached: self.keep_cached,
        })
    }
}

/// Shows the mode.
pub(crate) async fn show(State(interface): State<Arc<Interface>>) -> Json<Value> {
    Json(view(&interface.handle))
}

/// Switches it on. Further requests replace the mode.
pub(crate) async fn switch_on(
    State(interface): State<Arc<Interface>>,
    request: Result<Json<MaintenanceRequest>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let Json(request) = request?;
    switch(&interface, Some(request.mode()?), "POST /v1/maintenance")
}

/// Switches it off.
pub(crate) async fn switch_off(
    State(interface): State<Arc<Interface>>,
) -> Result<Json<Value>, Problem> {
    switch(&interface, None, "DELETE /v1/maintenance")
}

fn switch(
    interface: &Interface,
    mode: Option<Maintenance>,
    command: &str,
) -> Result<Json<Value>, Problem> {
    if interface.handle.maintain(mode, command) {
        return Ok(Json(view(&interface.handle)));
    }
    Err(Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "this process is being replaced, and the new one would miss the change",
        "retry on a new connection",
    ))
}

/// The mode as JSON.
pub(crate) fn view(handle: &Handle) -> Value {
    let Some(mode) = handle.maintenance() else {
        return json!({ "on": false });
    };
    json!({
        "on": true,
        "since": mode.since,
        "allow": mode.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "retry_after": mode.retry_after,
        "keep_cached": mode.keep_cached,
    })
}
