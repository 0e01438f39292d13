//! Pages that could not be changed, for the operator.

use std::sync::Arc;

use crate::metrics::Metrics;
use crate::observe::{Kind, Notices};

/// Logs and counts the pages of a route that are sent unchanged.
pub(super) struct UnchangedReport {
    pub(super) notices: Notices,
    pub(super) metrics: Arc<Metrics>,
    pub(super) route: String,
}

impl UnchangedReport {
    pub(super) fn note(&self, why: &str) {
        let Self {
            notices,
            metrics,
            route,
        } = self;
        metrics.note_unchanged_page(metrics.route(route));
        let line = format!("a page of {route} is sent unchanged, and not stored: {why}");
        notices.say(Kind::PageUnchanged, route, line);
    }
}
