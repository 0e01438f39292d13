//! `GET /v1/stream`: the statistics as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::time::{MissedTickBehavior, interval};

use crate::interface::Interface;
use crate::live::{Cut, PERIOD, Point, event};
use crate::problem::Problem;
use crate::stats;

/// Handles the event stream (server-sent events).
pub(crate) async fn stream(
    State(interface): State<Arc<Interface>>,
    Extension(cut): Extension<Cut>,
) -> Result<Response, Problem> {
    let now = interface.started.elapsed();
    let events = interface
        .live
        .join(cut, now, || snapshot(now, &interface))?;
    let fields = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((fields, Body::new(events)).into_response())
}

/// Records the totals every second, forever.
pub(crate) async fn watch(interface: Arc<Interface>) {
    let mut seconds = interval(PERIOD);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        let figures = interface.handle.metrics();
        let now = interface.started.elapsed();
        interface.windows().note(now, &figures);
        interface
            .live
            .tick(Point::of(now, &figures), || snapshot(now, &interface));
    }
}

/// `GET /v1/stats` as an event. Its id is the time since the start in milliseconds.
fn snapshot(at: Duration, interface: &Interface) -> Bytes {
    event("stats", at, &stats::view(interface))
}
