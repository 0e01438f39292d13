//! Options of request limits, at the top for all routes or in one route.

use std::ops::RangeInclusive;

use microcache_policy::rules::Prefetch;

use super::super::option::Form::{Number, Size, Text};
use super::super::option::{Opt, opt, optional};
use super::super::rate::{Quota, RateBy, RateOf};
use super::names::field_name;
use super::route::RouteDraft;

const BODY: RangeInclusive<u64> = 0..=1 << 50;

/// Options of request limits.
pub(in crate::config) const ASKING: &[Opt<RouteDraft>] = &[
    optional("max_body_size", Size, "64MiB")
        .unset("no limit")
        .help("Maximum size of a request body; larger ones get 413")
        .more(
            "A request that announces a larger body never reaches the backend. One of unknown \
             length is aborted once it exceeds the limit.",
        )
        .sets(|r, v, m| m.put(&mut r.route.max_body, v.size(&BODY).map(Some))),
    opt("rate", Text("NUMBER/PERIOD"), "off")
        .example("10/s")
        .help("Rate limit per client, such as `10/s` or `600/m`; above it 429")
        .more(
            "Other forms: `100/10s`, and `off` for no limit. Each route counts separately, even \
             if the option is at the top of the file. See \
             [operations](operations.md#rate-limits).",
        )
        .sets(|r, v, m| m.put(&mut r.route.rate.quota, v.parse(Quota::parse))),
    optional("burst", Number, "20")
        .unset("the number in `rate`")
        .help("Requests of one client allowed at once by the rate limit")
        .more("Further requests are admitted one by one at the pace of `rate`.")
        .sets(|r, v, m| {
            let burst = v.count(1..=1_000_000).map(|count| Some(count as u64));
            m.put(&mut r.route.rate.burst, burst);
        }),
    opt(
        "rate_by",
        Text("address|url|header:NAME|cookie:NAME|query:NAME"),
        "address",
    )
    .example("header:X-Api-Key")
    .help("Unit of the rate limit: client address, URL, header, cookie or parameter")
    .more(
        "`address`: the client's address (in IPv6 the /64; behind `trusted_proxies` the one \
             in X-Forwarded-For). `url`: all clients of a URL together. `header:`, `cookie:` and \
             `query:`: the value of that field, cookie or query parameter; a request without it \
             counts for its address. The backend has to reject unknown values: a client that \
             invents a new value for each request evades the limit.",
    )
    .sets(|r, v, m| m.put(&mut r.route.rate.by, v.parse(rate_by))),
    opt("rate_of", Text("misses|requests"), "misses")
        .help("Requests that count for the rate limit: cache misses or all")
        .more(
            "`misses` are requests not answered from memory, whether they reach the origin or \
             wait for a fetch already under way. `requests` are all. Background revalidations by \
             Microcache count in neither case.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rate.of, v.choice(RATE_OF))),
    opt("prefetch", Text("all|hits"), "all")
        .example("hits")
        .help("Prefetches by browsers that are answered: all, or cache hits only")
        .more(
            "With `hits`, a prefetch (`Sec-Purpose`, sent because of speculation rules) that is not answered from the \
             cache gets 503 and never reaches the backend. Navigations are not affected. See \
             [operations](operations.md#prefetches).",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.prefetch, v.choice(PREFETCH))),
];

const PREFETCH: &[(&str, Prefetch)] = &[("all", Prefetch::All), ("hits", Prefetch::Hits)];

const RATE_OF: &[(&str, RateOf)] = &[("misses", RateOf::Misses), ("requests", RateOf::Requests)];

fn rate_by(text: &str) -> Result<RateBy, String> {
    const FORM: &str =
        "write \"address\", \"url\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"";
    match text.split_once(':') {
        None if text == "address" => Ok(RateBy::Address),
        None if text == "url" => Ok(RateBy::Url),
        Some(("header", name)) => field_name(name).map(RateBy::Header),
        Some(("cookie", name)) => literal_name(name).map(RateBy::Cookie),
        Some(("query", name)) => literal_name(name).map(RateBy::Query),
        _ => Err(FORM.to_owned()),
    }
}

fn literal_name(name: &str) -> Result<String, String> {
    match name {
        "" => Err("the name after the colon is missing".to_owned()),
        name if name.contains(['*', ';', '=', '&', ' ']) => Err(format!(
            "`{name}` is not a name: write one without `*`, `;`, `=`, `&` and blanks"
        )),
        name => Ok(name.to_owned()),
    }
}
