//! Endpoints of the admin interface, as documented in docs/api.md and `openapi.json`.

use std::sync::Arc;

use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::interface::Interface;
use crate::problem::Problem;
use crate::{
    access, configuration, dashboard, entries, explain, health, maintenance, metrics, nodes,
    purges, stats, stream, top, warming,
};

/// Description of the interface, `openapi.json`.
const OPENAPI: &str = include_str!("../openapi.json");

pub(crate) fn router(interface: &Arc<Interface>) -> Router {
    let guarded = Router::new()
        .route("/v1/purges", get(purges::list).post(purges::purge))
        .route("/v1/purges/{id}", get(purges::one))
        .route("/v1/warm", post(warming::start))
        .route("/v1/warm/{id}", get(warming::show).delete(warming::stop))
        .route("/v1/stats", get(stats::stats))
        .route("/v1/nodes", get(nodes::nodes))
        .route("/v1/top", get(top::urls))
        .route("/v1/errors", get(top::errors))
        .route("/v1/entries", get(entries::entries))
        .route("/v1/stream", get(stream::stream))
        .route("/v1/explain", get(explain::look).post(explain::ask))
        .route("/v1/drain", post(drain))
        .route(
            "/v1/maintenance",
            get(maintenance::show)
                .post(maintenance::switch_on)
                .delete(maintenance::switch_off),
        )
        .route("/v1/config", get(configuration::in_force))
        .route("/v1/reload", post(configuration::reload))
        .route("/v1/upgrade", post(configuration::upgrade))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(Arc::clone(interface), access::check));
    let page = Router::new()
        .route("/", get(dashboard::page))
        .route("/assets/{name}", get(dashboard::asset))
        .route_layer(from_fn_with_state(
            Arc::clone(interface),
            access::check_page,
        ));
    Router::new()
        .merge(guarded)
        .merge(page)
        .route("/v1/health", get(health::health))
        .route("/v1/ready", get(health::ready))
        .fallback(async |uri: Uri| Problem::not_found(&uri))
        .method_not_allowed_fallback(other_method)
        .with_state(Arc::clone(interface))
}

async fn drain(
    axum::extract::State(interface): axum::extract::State<Arc<Interface>>,
) -> (StatusCode, Json<Value>) {
    // Stops in another task, so that the response is written first: the process may exit immediately.
    tokio::spawn(async move { interface.handle.stop() });
    (StatusCode::ACCEPTED, Json(json!({"draining": true})))
}

async fn openapi() -> ([(&'static str, &'static str); 1], &'static str) {
    ([("content-type", "application/json")], OPENAPI)
}

async fn other_method(method: Method, uri: Uri) -> Problem {
    let what = format!("{} does not support {method}", uri.path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        what,
        "the Allow field lists the methods",
    )
}
