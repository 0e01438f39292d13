//! Explains how a hypothetical request would be served, and why.
//!
//! The explanation reports the decisions of the serving path ([`microcache_policy::explain`] describes
//! each of them). Values of secret fields are omitted.

mod builtin_routes;
mod fragments;
mod phrases;
mod report;
pub(crate) mod request;
mod steps;
mod stored;

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use serde_json::Value;

use crate::interface::Interface;
use crate::problem::Problem;
use request::{ExplainQuery, ExplainRequest};

/// Handles `GET /v1/explain`, without contacting the origin.
pub(crate) async fn look(
    State(interface): State<Arc<Interface>>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(looked) = query?;
    explain(&interface, &looked.into()).await
}

/// Handles `POST /v1/explain`: with request fields, and optionally a fetch from the origin.
pub(crate) async fn ask(
    State(interface): State<Arc<Interface>>,
    request: Result<Json<ExplainRequest>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let Json(request) = request?;
    explain(&interface, &request).await
}

async fn explain(interface: &Interface, request: &ExplainRequest) -> Result<Json<Value>, Problem> {
    let imagined = request.imagined()?;
    let outlook = interface.handle.explain(&imagined, request.fetch).await;
    let outlook = outlook.map_err(|refused| request::refused(&refused))?;
    Ok(Json(report::report(&outlook)))
}
