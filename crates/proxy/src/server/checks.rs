//! Periodic checks that log changes: state of the tiers, memory, and suppressed log events.

use std::time::Duration;

use microcache_engine::Engine;
use microcache_store::{TierReport, TierStats};
use tokio::time::sleep;

use crate::config::units::{show_duration, show_size};
use crate::observe::{Kind, Notices};

/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Checks for as long as it is polled.
pub(super) async fn keep_checking(engine: &Engine, notices: &Notices) {
    let mut were_degraded = Vec::new();
    let mut was_full = false;
    let (mut foreign, mut settings) = (Vec::new(), Vec::new());
    let (mut lost, mut expired) = (0, Vec::new());
    loop {
        let reports = engine.cache.tier_reports();
        look_at_tiers(&reports, &mut were_degraded, notices);
        let of_foreign = |stats: &TierStats| stats.foreign.clone();
        look_for((Kind::Foreign, of_foreign), &reports, &mut foreign, notices);
        look_for(
            (Kind::TierSettings, advice),
            &reports,
            &mut settings,
            notices,
        );
        look_at_claims(&reports, engine, &mut expired, notices);
        lost = look_at_log(engine, lost, notices);
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
        "memory is full ({}): the least useful entries are evicted for new ones; `memory` sets the limit",
        show_size(capacity)
    )
}

/// Logs when a tier goes out of service, wholly or in part, and when it returns.
fn look_at_tiers(reports: &[TierReport], were_degraded: &mut Vec<bool>, notices: &Notices) {
    were_degraded.resize(reports.len(), false);
    for (report, was_degraded) in reports.iter().zip(were_degraded) {
        let trouble = &report.stats.degraded;
        let line = match (*was_degraded, trouble.is_empty()) {
            (false, false) => Some((Kind::TierDown, trouble.join("; "))),
            (true, true) => Some((Kind::TierUp, "in service again".to_owned())),
            _ => None,
        };
        if let Some((kind, line)) = line {
            let line = format!("{}: {line}", report.name);
            notices.say(kind, report.name, line);
        }
        *was_degraded = !trouble.is_empty();
    }
}

/// Logs a remark of each tier, on every change.
fn look_for(
    (kind, remark): (Kind, impl Fn(&TierStats) -> Option<String>),
    reports: &[TierReport],
    known: &mut Vec<Option<String>>,
    notices: &Notices,
) {
    known.resize(reports.len(), None);
    for (report, known) in reports.iter().zip(known) {
        let found = remark(&report.stats);
        if let Some(line) = &found
            && found != *known
        {
            notices.say(kind, report.name, format!("{}: {line}", report.name));
        }
        *known = found;
    }
}

fn advice(stats: &TierStats) -> Option<String> {
    (!stats.advice.is_empty()).then(|| stats.advice.join("; "))
}

/// Logs that claims of other processes have expired since the last check.
fn look_at_claims(
    reports: &[TierReport],
    engine: &Engine,
    before: &mut Vec<u64>,
    notices: &Notices,
) {
    before.resize(reports.len(), 0);
    for (report, before) in reports.iter().zip(before) {
        let count = report.expired_claims - *before;
        if count > 0 {
            let line = expired(report.name, count, engine.cache.claim_time());
            notices.say(Kind::ClaimExpired, report.name, line);
        }
        *before = report.expired_claims;
    }
}

fn expired(tier: &str, count: u64, limit: Duration) -> String {
    let claims = match count {
        1 => "the claim of another node".to_owned(),
        _ => format!("{count} claims of other nodes"),
    };
    format!(
        "{tier}: {claims} expired, this one fetches: another one was killed, hangs or is cut off; if all run, pages take \
         longer than `claim_timeout` ({}): raise it",
        show_duration(limit)
    )
}

/// Logs when everything was purged because purges may have been missed in the shared log. Returns the number
/// of those occasions so far.
fn look_at_log(engine: &Engine, before: u64, notices: &Notices) -> u64 {
    let lost = engine.cache.fleet().map_or(0, |fleet| fleet.lost);
    if lost > before {
        let line = "the shared purge log was lost, or contains foreign records: everything older counts as purged";
        notices.say(Kind::LogLost, "purges", line.to_owned());
    }
    lost
}
