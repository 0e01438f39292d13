//! Options that say what requests are let through: at the top for all routes, in a route for itself.

use std::ops::RangeInclusive;

use super::super::option::{About, Form, Opt, Unset};
use super::super::rate::{Quota, RateBy, RateOf};
use super::route::{RouteDraft, field_name};

const BODY: RangeInclusive<u64> = 0..=1 << 50;

/// Options that say what requests are let through.
pub(in crate::config) const ASKING: &[Opt<RouteDraft>] = &[
    Opt {
        about: About {
            name: "max_body_size",
            form: Form::Size,
            unset: Unset::Says("any size"),
            example: r#""64MiB""#,
            help: "The largest request body; a larger one is answered 413",
            more: "The application hears nothing of a request that says that its body is larger. One that does not say it is broken off.",
        },
        set: |r, v, m| m.put(&mut r.route.max_body, v.size(&BODY).map(Some)),
    },
    Opt {
        about: About {
            name: "rate",
            form: Form::Text("NUMBER/WHILE"),
            unset: Unset::Is(r#""off""#),
            example: r#""10/s""#,
            help: "How many requests of each client are let through; more are answered 429",
            more: "As in `10/s`, `600/m`, `100/10s`. Each route counts for itself, also where this stands at the top. `off` lets all through. \
                   See [operations](operations.md#so-many-requests-in-a-while).",
        },
        set: |r, v, m| m.put(&mut r.route.rate.quota, v.parse(Quota::parse)),
    },
    Opt {
        about: About {
            name: "burst",
            form: Form::Number,
            unset: Unset::Says("the number in `rate`"),
            example: "20",
            help: "How many of them may come at once",
            more: "After that they are let through one by one, at the pace of `rate`.",
        },
        set: |r, v, m| {
            let burst = v.count(1..=1_000_000).map(|count| Some(count as u64));
            m.put(&mut r.route.rate.burst, burst);
        },
    },
    Opt {
        about: About {
            name: "rate_by",
            form: Form::Text("address|url|header:NAME|cookie:NAME|query:NAME"),
            unset: Unset::Is(r#""address""#),
            example: r#""header:X-Api-Key""#,
            help: "Whom requests are counted for",
            more: "The client's address (in IPv6 the /64; behind `trusted_proxies` that in X-Forwarded-For), a url whoever asks for it, or \
                   whoever is named by a field, a cookie or a query parameter. A request without it is its address's. The application has \
                   to refuse names that it does not know: whoever makes one up for each request is not held back.",
        },
        set: |r, v, m| m.put(&mut r.route.rate.by, v.parse(rate_by)),
    },
    Opt {
        about: About {
            name: "rate_of",
            form: Form::Text("misses|requests"),
            unset: Unset::Is(r#""misses""#),
            example: r#""misses""#,
            help: "Which requests are counted",
            more: "`misses` are those that are not answered from memory, whether they reach the application or wait for somebody else's request. \
                   `requests` are all. What Microcache asks by itself, to refresh a response, is neither.",
        },
        set: |r, v, m| m.put(&mut r.route.rate.of, v.choice(RATE_OF)),
    },
];

const RATE_OF: &[(&str, RateOf)] = &[("misses", RateOf::Misses), ("requests", RateOf::Requests)];

fn rate_by(text: &str) -> Result<RateBy, String> {
    const FORM: &str =
        "write \"address\", \"url\", \"header:NAME\", \"cookie:NAME\" or \"query:NAME\"";
    match text.split_once(':') {
        None if text == "address" => Ok(RateBy::Address),
        None if text == "url" => Ok(RateBy::Url),
        Some(("header", name)) => field_name(name).map(RateBy::Header),
        Some(("cookie", name)) => named(name).map(RateBy::Cookie),
        Some(("query", name)) => named(name).map(RateBy::Query),
        _ => Err(FORM.to_owned()),
    }
}

fn named(name: &str) -> Result<String, String> {
    match name {
        "" => Err("the name is missing behind the colon".to_owned()),
        name if name.contains(['*', ';', '=', '&', ' ']) => {
            Err(format!("`{name}` is no name: it stands for one"))
        }
        name => Ok(name.to_owned()),
    }
}
