//! The tables of options. Each entry is the one place where its option is defined.

mod acme;
mod admin;
mod asking;
mod compression;
mod files;
mod group;
mod limits;
mod logs;
mod mercure;
mod push;
mod route;
mod rules;
mod server;
mod tiers;
mod tls;

use std::ops::RangeInclusive;
use std::time::Duration;

use super::mistake::Mistakes;
use super::option::{About, Opt, Unset};
use super::raw::Value;

pub(super) use acme::ACME;
pub(super) use admin::ADMIN;
pub(super) use asking::ASKING;
pub(super) use compression::{COMPRESSION, check_compression};
pub(super) use files::FILES;
pub(super) use group::{GROUP, HEALTH_CHECK, ORIGIN, SERVER_ENTRY, SERVERS};
pub(super) use limits::LIMITS;
pub(super) use logs::LOGS;
pub(super) use mercure::MERCURE;
pub(super) use push::PUSH;
pub(super) use route::{KEY, MATCH, QUERY, ROUTE, RouteDraft};
pub(super) use rules::RULES;
pub(super) use server::SERVER;
pub(super) use tiers::TIERS;
pub(super) use tls::{CERTIFICATE, TLS};

/// The options that the short help names.
pub(super) const COMMON: &[&str] = &[
    "listen",
    "threads",
    "memory",
    "disk",
    "ttl",
    "stale_while_revalidate",
    "stale_if_error",
    "max_concurrent",
];

/// What freshness and stale windows may be: more than a year is a slip of the hand.
const LIFETIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(365 * 24);

/// What waiting may be: a wait of nothing would fail everything.
const WAIT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);

/// Everything that may stand at the top of a file and has a flag.
pub(super) fn top_level() -> Vec<About> {
    let mut all = abouts(SERVER);
    all.extend(abouts(LIMITS));
    all.extend(abouts(TLS));
    all.extend(abouts(ACME));
    all.extend(abouts(ADMIN));
    all.extend(abouts(LOGS));
    all.extend(abouts(TIERS));
    all.extend(abouts(PUSH));
    all.extend(abouts(MERCURE));
    all.extend(abouts(RULES));
    all.extend(abouts(ASKING));
    all.extend(abouts(COMPRESSION));
    all.extend(abouts(GROUP));
    all
}

/// Everything that may stand in a route.
pub(super) fn of_a_route() -> impl Iterator<Item = About> {
    let who = abouts(ROUTE).into_iter().chain(abouts(FILES));
    let rules = abouts(RULES).into_iter().chain(abouts(ASKING));
    who.chain(rules).chain(abouts(COMPRESSION))
}

/// The tables inside a route, by name.
pub(super) fn tables_of_a_route() -> [(&'static str, Vec<About>); 2] {
    [("match", abouts(MATCH)), ("key", abouts(KEY))]
}

/// What people read about the options of one table.
pub(super) fn abouts<T>(options: &[Opt<T>]) -> Vec<About> {
    options.iter().map(|option| option.about).collect()
}

/// Sets every option of one table to its default.
pub(super) fn set_defaults<T>(options: &[Opt<T>], target: &mut T) {
    let mut mistakes = Mistakes::default();
    for option in options {
        if let Unset::Is(text) = option.about.unset {
            (option.set)(target, &Value::of_default(text), &mut mistakes);
        }
    }
    debug_assert!(mistakes.count() == 0, "{mistakes:?}");
}
