//! Explains stored variants: source and length of the lifetime, selecting fields, tags.

use std::collections::HashSet;

use microcache_engine::cache::variant_number;
use microcache_engine::{Compressed, Explained, ExplainedVariant, clock};
use microcache_policy::explain::span;
use microcache_policy::{
    Detail, LifetimeSource, Millis, NotCompressed, ResponseExplanation, ResponseFacts,
    StaleWindowSource, TagKind, Tags, Time, Times, vary,
};
use serde_json::{Value, json};

use super::phrases::{ExplanationStep, listed, text};
use crate::entries::{variant_id, varies_on};

/// Describes a stored variant as JSON.
pub(super) fn variant(one: &ExplainedVariant, explained: &Explained) -> Value {
    let (now, lifetime) = (explained.now, &one.lifetime);
    let seconds = |span: Millis| span as f64 / 1000.0;
    let account = account(one, explained);
    json!({
        "tier": one.tier.unwrap_or("memory"),
        "selected": one.is_selected,
        "variant": variant_id(variant_number(&explained.key, &one.vary, &one.selection)),
        "status": one.status,
        "state": state(one, explained),
        "age_seconds": seconds(lifetime.age(now)),
        "fresh_for_seconds": seconds(fresh_for(one, &account)),
        "ttl_seconds": lifetime.ttl(now) as f64 / 1000.0,
        "source": account.source.map(LifetimeSource::as_str),
        "stale_while_revalidate_seconds": seconds(lifetime.stale_while_revalidate()),
        "stale_if_error_seconds": seconds(lifetime.stale_if_error()),
        "varies_on": varies_on(&one.vary, &one.selection),
        "tags": tags(one, explained, TagKind::Tag),
        "groups": tags(one, explained, TagKind::Group),
        "hashed_tags": hashed_tags(one, explained),
        "purged_by_every_tag": one.tags.are_every(),
        "size": one.size,
        "hits": one.uses,
    })
}

/// Returns the state of a variant: fresh, stale, expired, or in need of validation.
fn state(one: &ExplainedVariant, explained: &Explained) -> &'static str {
    let (lifetime, ttl) = (&one.lifetime, one.lifetime.ttl(explained.now));
    if lifetime.must_be_validated() {
        "needs validation"
    } else if ttl > 0 {
        "fresh"
    } else if ttl.unsigned_abs() < lifetime.stale_while_revalidate() {
        "stale"
    } else {
        "expired"
    }
}

/// The names of the tags or groups, each once, in the order of the response.
fn tags(one: &ExplainedVariant, explained: &Explained, kind: TagKind) -> Vec<String> {
    let (all, mut seen) = (
        Tags::read(one.fields.fields(), &explained.rules),
        HashSet::new(),
    );
    let of_kind = all.iter().filter(|tag| tag.kind == kind);
    of_kind
        .map(|tag| text(&tag.name))
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// The number of tags of which only the hash is stored.
fn hashed_tags(one: &ExplainedVariant, explained: &Explained) -> usize {
    let named =
        tags(one, explained, TagKind::Tag).len() + tags(one, explained, TagKind::Group).len();
    if one.tags.are_every() {
        0
    } else {
        one.tags.len().saturating_sub(named)
    }
}

/// Judges a stored response's fields by the current rules.
fn account(one: &ExplainedVariant, explained: &Explained) -> ResponseExplanation {
    let read = ResponseFacts::read(one.fields.fields(), &explained.rules);
    let received = one.lifetime.response_time();
    let facts = explained.facts.as_fill();
    let times = Times {
        date: clock::date(received),
        ..Times::at(received)
    };
    let account = ResponseExplanation::of(&facts, one.status, &read, times);
    if !one.lifetime.is_anonymous() {
        return account;
    }
    // The cookies because of which it was stored so are not stored.
    ResponseExplanation {
        source: Some(LifetimeSource::AnonymousTtl),
        fresh_for: one.lifetime.fresh_for() - one.lifetime.initial_age(),
        must_validate: false,
        window_source: StaleWindowSource::Route,
        ..account
    }
}

/// Explains why the selected variant is stored, and for how long.
pub(super) fn steps(one: &ExplainedVariant, explained: &Explained) -> Vec<ExplanationStep> {
    let account = account(one, explained);
    let mut steps = vec![fresh(one, &account, explained.now), stale(one, &account)];
    if let Some(step) = otherwise(one, &account) {
        steps.push(step);
    }
    steps.extend(varies(one));
    let (names, hashed) = (
        tags(one, explained, TagKind::Tag),
        hashed_tags(one, explained),
    );
    if one.tags.are_every() {
        let what = "purged by every tag and group";
        steps.push(ExplanationStep::of(what, Detail::TooManyTags.explanation()));
    } else if !names.is_empty() {
        let what = format!("purged by {} too", listed(&names));
        steps.push(ExplanationStep::new(what, "the response has these tags"));
    }
    if hashed > 0 {
        steps.push(ExplanationStep::new(
            format!("purged by {hashed} tags too, whose names are not stored"),
            "the fields with tags were longer than 8 KiB, so only hashes of the tags are kept, and no client gets these \
             fields",
        ));
    }
    steps
}

/// Freshness lifetime and its source.
fn fresh(one: &ExplainedVariant, account: &ResponseExplanation, now: Time) -> ExplanationStep {
    let lifetime = &one.lifetime;
    let age = lifetime.age(now);
    if lifetime.must_be_validated() && account.must_validate {
        return ExplanationStep::new(
            "stored, and validated by the origin before every reuse",
            "the response has `no-cache` and a validator",
        )
        .by("RFC 9111 §5.2.2.4")
        .unless("have the application send `max-age` instead of `no-cache`");
    }
    if lifetime.must_be_validated() {
        return ExplanationStep::new(
            "stored, and validated by the origin before the next reuse",
            "an unsafe request to this URL, such as POST, has invalidated it",
        )
        .by("RFC 9111 §4.4");
    }
    let span_of = fresh_for(one, account);
    let what = format!(
        "stored, with a lifetime of {} and an age of {}",
        span(span_of),
        span(age)
    );
    match account.source {
        Some(by) if span_of == account.fresh_for => {
            let mut step = ExplanationStep::of(what, by.explanation());
            if account.is_targeted && !is_the_routes(by) {
                step.reason = format!(
                    "{}, in a targeted field such as `CDN-Cache-Control`",
                    step.reason
                );
                step.rfc = Some("RFC 9213 §2.2");
            }
            step
        }
        _ => ExplanationStep::new(
            what,
            "a soft purge or a HEAD response has made it stale, or the rules of the route have changed since it \
             was stored",
        ),
    }
}

/// The lifetime as its source sets it: of the route from the receipt of the response, otherwise from its generation.
fn fresh_for(one: &ExplainedVariant, account: &ResponseExplanation) -> Millis {
    let before = match account.source {
        Some(by) if is_the_routes(by) => one.lifetime.initial_age(),
        _ => 0,
    };
    one.lifetime.fresh_for().saturating_sub(before)
}

const fn is_the_routes(by: LifetimeSource) -> bool {
    matches!(
        by,
        LifetimeSource::AnonymousTtl
            | LifetimeSource::ForcedTtl
            | LifetimeSource::StatusTtl
            | LifetimeSource::Ttl
    )
}

/// Stale window for revalidation.
fn stale(one: &ExplainedVariant, account: &ResponseExplanation) -> ExplanationStep {
    const NEVER: &str = "not served stale while it is revalidated";
    let window = one.lifetime.stale_while_revalidate();
    if one.lifetime.must_be_validated() {
        return ExplanationStep::new(NEVER, "it requires validation before every reuse")
            .by("RFC 9111 §5.2.2.4");
    }
    let what = match window {
        0 => NEVER.to_owned(),
        _ => format!(
            "then served stale for {} while one request revalidates it",
            span(window)
        ),
    };
    ExplanationStep::of(what, account.window_source.explanation(window))
}

/// Stale window for origin errors.
fn otherwise(one: &ExplainedVariant, account: &ResponseExplanation) -> Option<ExplanationStep> {
    let if_error = one.lifetime.stale_if_error();
    if one.lifetime.must_be_validated() || if_error == 0 {
        return None;
    }
    let what = format!("served stale for {} if the origin fails", span(if_error));
    let validator = if account.has_validator {
        "`ETag` or `Last-Modified` lets the origin confirm it with 304"
    } else {
        "without `ETag` and `Last-Modified` the origin always sends the complete response"
    };
    Some(ExplanationStep::new(what, validator).by("RFC 5861 §4"))
}

/// Explains the content coding of the response.
pub(super) fn compression(compression: Result<Compressed, NotCompressed>) -> ExplanationStep {
    let Compressed {
        coding,
        before,
        after,
    } = match compression {
        Ok(compressed) => compressed,
        Err(why) => {
            return ExplanationStep::of("sent as stored, not compressed", why.explanation());
        }
    };
    let name = coding.as_str();
    let what = format!("sent as `{name}`, {after} B instead of {before} B");
    ExplanationStep::of(what, coding.explanation())
}

/// Explains the requests that a variant matches.
fn varies(one: &ExplainedVariant) -> Option<ExplanationStep> {
    let selected = vary::selected_values(&one.vary, &one.selection);
    if selected.is_empty() {
        return None;
    }
    let says = selected.iter().map(|(name, value)| match value.as_deref() {
        None => format!("`{name}` (not shown)"),
        Some("") => format!("`{name}` (empty)"),
        Some(value) => format!("`{name}` ({value})"),
    });
    let says: Vec<_> = says.collect();
    let what = "reused for requests with the same values of the selecting fields";
    let because = format!("`Vary` of this URL lists {}", says.join(", "));
    let step = ExplanationStep::new(what, because).by("RFC 9111 §4.1");
    Some(step.unless("`ignore_vary` on the route omits fields that do not matter"))
}
