//! How pages say where they can be watched (RFC 5989), on routes that have them watched.
//!
//! It is said of each answer when it is written, and not stored with it: one that is stored may be given to several urls,
//! and another configuration has no other copies.

use microcache_engine::{Outcome, Response};
use microcache_policy::{FieldBlock, FieldsBuf};
use microcache_push::{MonitorValidator, monitor_link};

use super::{Reply, Session};

impl Session {
    /// Says where what is answered at once can be watched, if its route allows that.
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

/// Says where this can be watched: what everybody is given, and nothing else changes in a way that anybody is told of.
pub(super) fn add_monitor(target: &[u8], response: &mut Response) {
    let is_everybodys = match response.outcome {
        Outcome::Hit | Outcome::Stale | Outcome::Revalidated | Outcome::Collapsed => true,
        _ => response.cache_status.stored,
    };
    if response.status != 200 || !is_everybodys {
        return;
    }
    // Another version than this one is told to whoever comes with its tag; who has none is told which one there is.
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
