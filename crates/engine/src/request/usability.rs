//! The decision whether the stored response that a request selects may answer it.

use microcache_policy::reuse::{Reuse, RevalidationReason, awaits_refresh, reuse};
use microcache_policy::status::Forward;
use microcache_policy::{Detail, OriginView, RequestFacts, Time};
use microcache_store::Hit;

use crate::request::engine::Engine;

/// The use that a stored response permits.
pub(crate) enum Usability {
    /// It is served.
    Fresh,
    /// It is served stale, and should be refreshed.
    Stale,
    /// It is not served; the origin is asked for this reason.
    None(Forward),
}

impl Engine {
    /// Decides whether the stored response that a request selects may be its answer.
    #[inline]
    pub(crate) fn usability(
        &self,
        hit: &Hit,
        key: &[u8],
        view: &OriginView<'_>,
        facts: &RequestFacts,
        now: Time,
    ) -> Usability {
        match reuse(&hit.lifetime(), facts, now) {
            Reuse::Fresh => Usability::Fresh,
            Reuse::Stale | Reuse::Revalidate(RevalidationReason::Expired)
                if sets_cookies(hit, view, now) =>
            {
                Usability::None(Forward::Stale)
            }
            Reuse::Stale => Usability::Stale,
            Reuse::Revalidate(RevalidationReason::Expired)
                if self.awaits_refresh(hit, key, view, now) =>
            {
                Usability::Stale
            }
            Reuse::Revalidate(RevalidationReason::Expired | RevalidationReason::NoCache) => {
                Usability::None(Forward::Stale)
            }
            Reuse::Revalidate(
                RevalidationReason::MaxAge
                | RevalidationReason::MinFresh
                | RevalidationReason::Reload,
            )
            | Reuse::NotShareable => Usability::None(Forward::Request),
        }
    }

    /// Returns true for a copy beyond its stale window that is still usable because its refresh is
    /// under way.
    fn awaits_refresh(&self, hit: &Hit, key: &[u8], request: &OriginView<'_>, now: Time) -> bool {
        awaits_refresh(&hit.lifetime(), now)
            && self
                .cache
                .is_refreshing(key, &hit.object().selection(request))
    }
}

/// Returns true if the origin has recently set a cookie in its response to such a request. Each
/// client then needs a response of its own, and the stale copy is for errors only.
#[cold]
fn sets_cookies(hit: &Hit, view: &OriginView<'_>, now: Time) -> bool {
    let object = hit.object();
    object.uncacheable(&object.selection(view), now) == Some(Detail::SetCookie)
}
