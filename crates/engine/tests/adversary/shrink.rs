//! Shrinks a conversation to the shortest one that still shows a fault.

use super::checks::{self, Kind};
use super::world::{Plan, run};

pub(crate) fn shortest(plan: &Plan, kind: Kind) -> Plan {
    let shows = |plan: &Plan| {
        checks::faults(plan, &run(plan))
            .iter()
            .any(|one| one.kind == kind)
    };
    let mut best = plan.clone();
    let mut size = best.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let next = best.without(at, size);
            if shows(&next) {
                best = next;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    best.with_fewer_fields(shows)
}
