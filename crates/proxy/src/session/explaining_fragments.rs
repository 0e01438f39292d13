//! Fragments of a stored page, for the operator's `explain`.

use http::Method;
use microcache_engine::{Decision, Explained, Request};
use microcache_policy::edge::{FragmentRefusal, fragment_request};
use microcache_policy::{Handling, VaryNames};

use super::Session;

/// A fragment of the page that a request selects.
#[derive(Debug)]
pub struct ExplainedFragment {
    /// URL in the tag.
    pub url: Vec<u8>,
    /// The decision about its request.
    pub decision: Result<FragmentDecision, FragmentRefusal>,
}

/// The decision about the request for a fragment.
#[derive(Debug)]
pub struct FragmentDecision {
    /// Name of its route.
    pub route: String,
    /// Decision of the engine.
    pub decision: Decision,
    /// It is shared by all visitors, but its page is not: it may be that of another visitor's page.
    pub is_shared_in_keyed_page: bool,
}

impl Session {
    /// Explains the fragments of the page that is stored for a request.
    pub(super) async fn explained_fragments(
        &self,
        page: &Request<'_>,
        explained: &Explained,
    ) -> Vec<ExplainedFragment> {
        let selected = explained.variants.iter().find(|it| it.is_selected);
        let Some(pieces) = selected.and_then(|variant| variant.pieces.as_ref()) else {
            return Vec::new();
        };
        let paths = &self.shared.config.routes[explained.route()].edge.paths;
        let fields = fragment_request(page.fields);
        let is_keyed =
            selected.is_some_and(|variant| goes_by_cookie(explained, variant.vary.iter()));
        let mut fragments = Vec::new();
        for include in pieces.holes() {
            let url = include.source().to_vec();
            let decision = match paths.target(&url, page.host, page.target) {
                Err(why) => Err(why),
                Ok(target) => {
                    let request = Request {
                        is_trusted: page.is_trusted,
                        ..self.request(&Method::GET, page.host, &target, fields.fields())
                    };
                    let fragment = self.shared.engine.explain(&request).await;
                    let mut variants = fragment.variants.iter();
                    let vary = variants.find(|it| it.is_selected).map(|it| &it.vary);
                    let names = vary.into_iter().flat_map(VaryNames::iter);
                    let is_shared = fragment.facts.handling() != Handling::Credentialed
                        && !matches!(fragment.decision, Decision::Pass(..))
                        && !goes_by_cookie(&fragment, names);
                    Ok(FragmentDecision {
                        is_shared_in_keyed_page: is_keyed && is_shared,
                        route: fragment.route_name,
                        decision: fragment.decision,
                    })
                }
            };
            fragments.push(ExplainedFragment { url, decision });
        }
        fragments
    }
}

/// Returns true if responses differ by a cookie.
fn goes_by_cookie<'a>(explained: &Explained, mut vary: impl Iterator<Item = &'a str>) -> bool {
    !explained.rules.key.cookies.is_empty() || vary.any(|name| name.eq_ignore_ascii_case("cookie"))
}
