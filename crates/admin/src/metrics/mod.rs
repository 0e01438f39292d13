//! Metrics in the Prometheus text format: `GET /metrics`.
//!
//! `table` has a row for each metric: name, help, type, and the function that reads its samples from the state of the
//! process (`scrape`). `metric` defines the rows, `samples` writes the text.

mod metric;
mod samples;
mod scrape;
mod table;

use std::sync::Arc;

use axum::extract::State;

use crate::interface::Interface;
use scrape::Scrape;
use table::METRICS;

/// Media type of the Prometheus text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Handles `GET /metrics`.
pub(crate) async fn metrics(
    State(interface): State<Arc<Interface>>,
) -> ([(&'static str, &'static str); 1], String) {
    let scrape = Scrape::of(&interface);
    let mut text = String::new();
    for metric in METRICS {
        metric.write(&scrape, &mut text);
    }
    ([("content-type", TEXT)], text)
}
