//! Health and readiness for service managers and load balancers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;

use crate::certificates;
use crate::interface::Interface;
use crate::push;

#[derive(Serialize)]
pub(crate) struct HealthReport {
    status: &'static str,
    /// Conditions that need attention but do not affect service.
    warnings: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Readiness {
    ready: bool,
    /// Reasons against readiness.
    reasons: Vec<String>,
}

/// Handles the liveness check, which always succeeds.
pub(crate) async fn health(State(interface): State<Arc<Interface>>) -> Json<HealthReport> {
    Json(HealthReport {
        status: "ok",
        warnings: [
            certificates::warnings(&interface.handle),
            push::warnings(&interface.handle),
        ]
        .concat(),
    })
}

/// Handles the readiness check: ready unless the server is shutting down or has not loaded the shared documents. An
/// origin that is down does not count, since stored responses are served without it.
pub(crate) async fn ready(
    State(interface): State<Arc<Interface>>,
) -> (StatusCode, Json<Readiness>) {
    let reasons: Vec<_> = interface
        .handle
        .is_leaving()
        .then(|| "the server is shutting down".to_owned())
        .into_iter()
        .chain(push::not_ready(&interface.handle))
        .collect();
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(Readiness { ready, reasons }))
}
