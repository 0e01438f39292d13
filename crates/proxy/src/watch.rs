//! What is looked at now and then, and told when it changes: the tiers, memory, and notices that
//! were held back.

use std::time::Duration;

use microcache_engine::Engine;
use microcache_store::TierReport;
use tokio::time::sleep;

use crate::config::units::show_size;
use crate::notices::{Kind, Notices};

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks for as long as it is polled.
pub(crate) async fn watch(engine: &Engine, notices: &Notices) {
    let mut were_degraded = Vec::new();
    let mut was_full = false;
    loop {
        look_at_tiers(&engine.cache.tier_reports(), &mut were_degraded, notices);
        let memory = engine.cache.memory_stats();
        let is_full = memory.evicted > 0;
        if is_full && !was_full {
            notices.say(Kind::MemoryFull, "memory", full(memory.capacity));
        }
        was_full = is_full;
        notices.tick();
        sleep(LOOK_EVERY).await;
    }
}

fn full(capacity: u64) -> String {
    format!(
        "memory is full ({}): what is asked for least leaves for what is new; `memory` says how much there may be",
        show_size(capacity)
    )
}

/// Says when a tier falls out of service, wholly or in part, and when it is back.
fn look_at_tiers(reports: &[TierReport], were_degraded: &mut Vec<bool>, notices: &Notices) {
    were_degraded.resize(reports.len(), false);
    for (report, was_degraded) in reports.iter().zip(were_degraded) {
        let trouble = &report.stats.degraded;
        let line = match (*was_degraded, trouble.is_empty()) {
            (false, false) => Some((Kind::TierDown, trouble.join("; "))),
            (true, true) => Some((Kind::TierUp, "in order again".to_owned())),
            _ => None,
        };
        if let Some((kind, line)) = line {
            let line = format!("{}: {line}", report.name);
            notices.say(kind, report.name, line);
        }
        *was_degraded = !trouble.is_empty();
    }
}
