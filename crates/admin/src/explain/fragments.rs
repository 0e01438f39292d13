//! Steps about the fragments of a page.

use microcache_proxy::{ExplainedFragment, FragmentDecision};

use super::phrases::{ExplanationStep, text};

/// Describes the fragment in the place of a tag.
pub(super) fn step(fragment: &ExplainedFragment) -> ExplanationStep {
    let url = text(&fragment.url);
    let FragmentDecision {
        route,
        decision,
        is_shared_in_keyed_page,
    } = match &fragment.decision {
        Ok(decision) => decision,
        Err(why) => {
            return ExplanationStep::new(format!("the fragment `{url}` is left out"), why.as_str());
        }
    };
    let source = if decision.is_hit() {
        "from memory"
    } else {
        "waited for"
    };
    let message = format!("the fragment `{url}` {source}, route `{route}`");
    let step = ExplanationStep::of(message, decision.explanation());
    if *is_shared_in_keyed_page {
        return step.unless(
            "the page differs by a cookie, but this fragment is the same for all visitors: if it shows what the cookie \
             selects, add the cookie to `key.cookies` on the fragment's route",
        );
    }
    step
}
