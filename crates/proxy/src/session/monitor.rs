//! Links from responses to the address where they can be watched (RFC 5989), on routes with `watch`.
//!
//! Added when a response is written, not when it is stored: a stored one may serve several URLs, and another
//! configuration shares it.

use microcache_engine::Response;
use microcache_policy::{FieldBlock, FieldsBuf};
use microcache_push::{MonitorValidator, monitor_link};

use super::header_rules::is_shared;
use super::{Reply, Session};

impl Session {
    /// Adds the link to an immediate response, if its route allows it.
    #[cold]
    #[inline(never)]
    pub(super) fn add_monitor(&self, route: usize, target: &[u8], reply: &mut Option<Reply>) {
        if self.shared.is_watched(route)
            && let Some(Reply::Now(response)) = reply
        {
            add_monitor(target, response);
        }
    }
}

/// Adds the link to a 200 that is shared between clients. Changes of private responses are not published.
pub(super) fn add_monitor(target: &[u8], response: &mut Response) {
    if response.status != 200 || !is_shared(response) {
        return;
    }
    // Subscribers compare entity tags; without one, the first event carries the current tag.
    let fields = response.fields();
    let has = fields
        .get("etag")
        .map_or(MonitorValidator::Unknown, MonitorValidator::Tag);
    if let Some(link) = monitor_link(target, has) {
        let mut more = FieldsBuf::from(fields);
        more.push("Link", link);
        response.fields = Some(FieldBlock::from(more));
    }
}
