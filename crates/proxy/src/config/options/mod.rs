//! The tables of options. Each entry is the only definition of its option.

mod access;
mod acme;
mod admin;
mod answers;
mod asking;
mod compression;
mod edge;
mod error_pages;
mod files;
mod group;
mod headers;
mod include;
mod key;
mod limits;
mod logs;
mod mercure;
mod names;
mod pages;
mod push;
mod redirects;
mod rewriting;
mod route;
mod rules;
mod server;
mod tiers;
mod tls;
mod user_context;

use std::ops::RangeInclusive;
use std::time::Duration;

use super::flag::Flag;
use super::mistake::Mistakes;
use super::option::{About, Opt};

pub(super) use access::{
    ACCESS, BASIC_AUTH, FORWARD_AUTH, check_authentication, check_client_certificate,
};
pub(super) use acme::ACME;
pub(super) use admin::ADMIN;
pub(super) use answers::{ANSWERS, REDIRECT, RESPOND};
pub(super) use asking::ASKING;
pub(super) use compression::{COMPRESSION, check_compression};
pub(super) use edge::{EDGE, check_edge};
pub(super) use error_pages::ERROR_PAGES;
pub(super) use files::FILES;
pub(super) use group::{GROUP, HEALTH_CHECK, ORIGIN, SERVER_ENTRY, SERVERS};
pub(super) use headers::{HEADERS, REQUEST_HEADERS, RESPONSE_HEADERS};
pub(super) use include::INCLUDE;
pub(super) use key::{KEY, QUERY};
pub(super) use limits::LIMITS;
pub(super) use logs::LOGS;
pub(super) use mercure::MERCURE;
pub(super) use pages::{HOLE, PAGES, TOKEN, check_page_edits};
pub(super) use push::PUSH;
pub(super) use redirects::REDIRECTS;
pub(super) use rewriting::{REWRITE, REWRITING};
pub(super) use route::{MATCH, Otherwise, ROUTE, RouteDraft, exclusive};
pub(super) use rules::RULES;
pub(super) use server::SERVER;
pub(super) use tiers::TIERS;
pub(super) use tls::{CERTIFICATE, TLS};
pub(super) use user_context::USER_CONTEXT;

/// The options that the short help lists, each in few words.
const COMMON: [(&str, &str); 14] = [
    ("listen", "Address to listen on [127.0.0.1:8080]"),
    ("acme", "Host to get HTTPS certificates for"),
    ("tls", "HTTPS certificate and key (PEM)"),
    ("memory", "Memory for stored responses [256MiB]"),
    ("disk", "Disk tier, as /var/cache/mc,10GiB"),
    ("ttl", "Freshness if the origin sets none [1s]"),
    (
        "stale_while_revalidate",
        "Time served stale while revalidating [10s]",
    ),
    ("stale_if_error", "Time served stale on origin errors [1d]"),
    ("ignore_cookies", "Cookies that are not personal"),
    ("max_concurrent", "Concurrent requests to the origin [64]"),
    ("purge_from", "Clients that may send PURGE and BAN"),
    ("push", "Paths of documents pushed live"),
    ("admin", "Admin interface [127.0.0.1:8081]"),
    ("access_log", "Access log: stdout or a file [off]"),
];

/// The bounds of freshness lifetimes and stale windows. More than a year is taken for a typing error.
const LIFETIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(365 * 24);

/// The bounds of timeouts. A timeout of zero would fail every request.
const WAIT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24);

/// The bounds of the times of a drain, which may be zero.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_hours(24);

/// Returns the options at the top of the file, by group, in the order of the sample and the help.
pub(super) fn groups() -> [(&'static str, Vec<About>); 19] {
    [
        ("Server", abouts(SERVER)),
        ("Client connections", abouts(LIMITS)),
        ("TLS", abouts(TLS)),
        ("Certificates (ACME)", abouts(ACME)),
        ("Admin interface", abouts(ADMIN)),
        ("Logs and traces", abouts(LOGS)),
        ("Disk, memcached and Redis", abouts(TIERS)),
        ("Push", abouts(PUSH)),
        ("Mercure hub", abouts(MERCURE)),
        ("Caching", abouts(RULES)),
        ("Request limits", abouts(ASKING)),
        ("Access", abouts(ACCESS)),
        ("Redirects", abouts(REDIRECTS)),
        ("Error pages", abouts(ERROR_PAGES)),
        ("Compression", abouts(COMPRESSION)),
        ("Edge side includes", abouts(EDGE)),
        ("Holes and tokens", abouts(PAGES)),
        ("Header fields", abouts(HEADERS)),
        ("Origin (backend)", abouts(GROUP)),
    ]
}

/// Returns the flags of the command line: every top-level option that fits on one line, by group.
pub fn flags() -> impl Iterator<Item = Flag> {
    let brief = |about: &About| {
        let mut common = COMMON.iter();
        common.find_map(|(name, brief)| (*name == about.name).then_some(*brief))
    };
    groups().into_iter().flat_map(move |(group, abouts)| {
        let flags = abouts.into_iter();
        flags.filter_map(move |about| about.flag(group, brief(&about)))
    })
}

/// Returns all options at the top of the file, in the order of [`groups`].
pub(super) fn top_level() -> impl Iterator<Item = About> {
    groups().into_iter().flat_map(|(_, abouts)| abouts)
}

/// Returns the options of a route.
pub(super) fn of_a_route() -> impl Iterator<Item = About> {
    let own = abouts(ROUTE).into_iter().chain(abouts(FILES));
    let own = own.chain(abouts(ANSWERS)).chain(abouts(REWRITING));
    let rules = abouts(RULES).into_iter().chain(abouts(ASKING));
    own.chain(rules)
        .chain(abouts(ACCESS))
        .chain(abouts(COMPRESSION))
        .chain(abouts(EDGE))
        .chain(abouts(PAGES))
        .chain(abouts(HEADERS))
        .chain(abouts(REDIRECTS))
        .chain(abouts(ERROR_PAGES))
}

/// Returns the tables inside a route, by name.
pub(super) fn tables_of_a_route() -> [(&'static str, Vec<About>); 12] {
    [
        ("match", abouts(MATCH)),
        ("key", abouts(KEY)),
        ("holes", abouts(HOLE)),
        ("tokens", abouts(TOKEN)),
        ("user_context", abouts(USER_CONTEXT)),
        ("basic_auth", abouts(BASIC_AUTH)),
        ("forward_auth", abouts(FORWARD_AUTH)),
        ("response_headers", abouts(RESPONSE_HEADERS)),
        ("request_headers", abouts(REQUEST_HEADERS)),
        ("redirect", abouts(REDIRECT)),
        ("respond", abouts(RESPOND)),
        ("rewrite", abouts(REWRITE)),
    ]
}

/// Returns the descriptions of the options of one table.
pub(super) fn abouts<T>(options: &[Opt<T>]) -> Vec<About> {
    options.iter().map(|option| option.about).collect()
}

/// Sets every option of one table to its default.
pub(super) fn set_defaults<T>(options: &[Opt<T>], target: &mut T) {
    let mut mistakes = Mistakes::default();
    for option in options {
        if let Some(value) = option.about.default_value() {
            (option.set)(target, &value, &mut mistakes);
        }
    }
    debug_assert!(mistakes.count() == 0, "{mistakes:?}");
}
