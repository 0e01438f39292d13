//! Steps of the explanation up to the lookup: route, kind of request, cache key, stored responses.

use std::collections::HashSet;

use microcache_engine::{Decision, Explained};
use microcache_policy::explain::span;
use microcache_policy::{
    Detail, Explanation, Fields, Forward, Handling, Millis, OmittedFields, Reuse,
    RevalidationReason, cookies, key, query,
};
use microcache_proxy::{ParsedRequest, RateLimitState, RequestExplanation, RouteResponse};
use serde_json::{Value, json};

use super::builtin_routes;
use super::fragments;
use super::phrases::{ExplanationStep, listed, text};
use crate::entries::location;

/// Lists the steps that decide where the response comes from.
pub(super) fn steps(outlook: &RequestExplanation) -> Vec<ExplanationStep> {
    let RequestExplanation {
        request, explained, ..
    } = outlook;
    let mut steps = vec![ExplanationStep::new(
        format!("route `{}`", explained.route_name),
        "the first route whose conditions match",
    )];
    steps.extend(outlook.rated.as_ref().map(rated));
    if !outlook.own.is_some_and(comes_before_authentication) {
        steps.extend(outlook.authentication.as_ref().map(authentication_step));
    }
    if let Some(response) = &outlook.route_response {
        steps.push(route_response_step(response));
        return steps;
    }
    if let Some(own) = outlook.own {
        steps.push(ExplanationStep::of(
            "answered by Microcache, not forwarded",
            own.explanation(),
        ));
        return steps;
    }
    if let Some(place) = outlook.hosted {
        steps.extend(builtin_routes::steps(place, outlook));
        return steps;
    }
    steps.push(handling_step(request, explained));
    steps.extend(outlook.rewritten.as_deref().map(rewritten_step));
    if let Decision::Pass(..) = explained.decision {
        return steps;
    }
    steps.push(keyed(request, explained));
    steps.push(lookup_step(explained));
    steps.extend(outlook.fragments.iter().map(fragments::step));
    if let Decision::Ask { detail, .. } = explained.decision
        && let Some(detail) = detail.filter(|detail| *detail != Detail::Credentials)
    {
        steps.push(by_itself(detail, explained.remembered));
    }
    steps.extend(left_out(explained));
    if let Decision::Ask { joins: true, .. } = explained.decision {
        let others = others_wait(explained);
        steps.push(ExplanationStep::new(
            format!("waits for an origin request in progress{others}"),
            "concurrent requests for one key share one origin request",
        ));
    }
    if matches!(explained.decision, Decision::OnlyIfCached(_)) {
        let explanation = explained.decision.explanation();
        steps.push(ExplanationStep::of("answered with 504", explanation));
    }
    steps
}

/// Describes the fetch that the request waits for: its age, and the other waiting requests.
pub(super) fn others_wait(explained: &Explained) -> String {
    let Some(fetch) = &explained.joins else {
        return String::new();
    };
    let age = span(fetch.age.as_millis() as Millis);
    match fetch.waiting {
        0 => format!(", started {age} ago"),
        1 => format!(", started {age} ago, with 1 other request waiting"),
        others => format!(", started {age} ago, with {others} other requests waiting"),
    }
}

/// Explains the request fields that a shared fetch omits; `None` if the request is sent complete.
fn left_out(explained: &Explained) -> Option<ExplanationStep> {
    let is_for_everyone = match explained.decision {
        Decision::Ask { detail, .. } => detail != Some(Detail::Withheld),
        Decision::Stored { .. } => true,
        Decision::Pass(..) | Decision::OnlyIfCached(_) => false,
    };
    if explained.facts.handling() != Handling::Cache || !is_for_everyone {
        return None;
    }
    let names =
        |names: &[Vec<u8>]| listed(&names.iter().map(|name| text(name)).collect::<Vec<_>>());
    let OmittedFields { withheld, dropped } = &explained.left_out;
    if !withheld.is_empty() {
        let step = ExplanationStep::new(
            format!("sent to the origin without {}", names(withheld)),
            "the response is shared, and the page may depend on a field that other clients do not send",
        );
        return Some(step.unless(
            "if the field selects the page, add it to `key.headers` on the route, or have the application list it \
             in `Vary`",
        ));
    }
    (!dropped.is_empty()).then(|| {
        ExplanationStep::new(
            format!("sent to the origin without {}", names(dropped)),
            "the response is shared, and these fields describe one client",
        )
    })
}

/// Response of the route itself.
fn route_response_step(response: &RouteResponse) -> ExplanationStep {
    let message = route_response(response);
    match response.location {
        Some(_) => ExplanationStep::new(message, "the route has `redirect`"),
        None => ExplanationStep::new(message, "the route has `respond`"),
    }
}

/// Describes the response of the route itself.
pub(super) fn route_response(response: &RouteResponse) -> String {
    let RouteResponse { status, location } = response;
    match location {
        Some(location) => format!("redirected to `{}` with {status}", text(location)),
        None => format!("answered with {status} by the route, not forwarded"),
    }
}

/// Path that the origin is asked for.
fn rewritten_step(target: &[u8]) -> ExplanationStep {
    ExplanationStep::new(
        format!("the origin is asked for `{}`", text(target)),
        "the route, or the URL of the origin, changes the path; the key has the client's",
    )
}

/// Returns whether a request is answered before it is authenticated.
const fn comes_before_authentication(own: Detail) -> bool {
    matches!(
        own,
        Detail::AmbiguousPath
            | Detail::AccessDenied
            | Detail::CertificateRequired
            | Detail::Maintenance
            | Detail::RateLimited
    )
}

/// Authentication server that decides first.
fn authentication_step((url, is_kept): &(String, bool)) -> ExplanationStep {
    let kept = if *is_kept {
        ", unless it has admitted an identical request a short time ago (`cache`)"
    } else {
        ""
    };
    ExplanationStep::new(
        format!("the authentication server is asked first, and decides: GET {url}{kept}"),
        "the route has `forward_auth`: 2xx admits the request; 401, 403 and redirects go to the client; anything else is \
         503. What follows holds if it is admitted; explain does not ask",
    )
}

/// Rate limit of the route.
fn rated(rated: &RateLimitState) -> ExplanationStep {
    let RateLimitState {
        quota, by, left, ..
    } = rated;
    let of = if rated.only_misses {
        "requests that are not hits in memory"
    } else {
        "requests"
    };
    let left = match left {
        1 => "1 request".to_owned(),
        _ => format!("{left} requests"),
    };
    ExplanationStep::new(
        format!("rate limit of {quota}, {left} left"),
        format!("`rate` counts {of} by {by}"),
    )
}

/// Explains why the request is not coalesced, and, if remembered, why the last response could not be shared.
fn by_itself(detail: Detail, remembered: Option<Detail>) -> ExplanationStep {
    let explanation = detail.explanation();
    let step = ExplanationStep::of("sent to the origin without coalescing", explanation);
    let Some(why) = remembered else {
        return step;
    };
    let last = why.explanation();
    ExplanationStep {
        reason: format!("{}: {}", explanation.because, last.because),
        rfc: last.rfc,
        hint: last.remedy.or(explanation.remedy).map(str::to_owned),
        ..step
    }
}

/// Classifies the request: cacheable, pass, or personal.
fn handling_step(request: &ParsedRequest, explained: &Explained) -> ExplanationStep {
    const STRAIGHT: &str = "passed to the origin, not stored";
    if explained.passes {
        return ExplanationStep::new(STRAIGHT, "the route has `pass = true`")
            .unless("remove `pass` from the route, or add an earlier route that matches this URL");
    }
    if let Some(why) = explained.bypass {
        return ExplanationStep::of(STRAIGHT, why.explanation());
    }
    let handling = explained.facts.handling();
    let explanation = handling.explanation();
    match handling {
        Handling::Pass(_) => ExplanationStep::of(STRAIGHT, explanation),
        Handling::Credentialed => ExplanationStep {
            reason: format!("the request has {}", credentials(request, explained)),
            ..ExplanationStep::of(
                "personal request, served and stored only if the response is marked as shareable, never coalesced",
                explanation,
            )
        },
        Handling::Cache => ExplanationStep::of("cacheable request", explanation),
    }
}

/// Names, without values, of the fields that make the request personal.
fn credentials(request: &ParsedRequest, explained: &Explained) -> String {
    let mut all = Vec::new();
    if explained.facts.credentials().authorization {
        let names = microcache_policy::identities(request.fields(), &explained.rules);
        let mut names: Vec<_> = names.map(|name| format!("`{}`", text(name))).collect();
        if names.is_empty() {
            names.push("an authenticated connection (NTLM or Negotiate)".to_owned());
        }
        all.append(&mut names);
    }
    if explained.facts.credentials().cookie {
        let names = cookies::personal(request.fields(), &explained.rules);
        let unclear = names.iter().any(Option::is_none);
        let names: Vec<_> = names.into_iter().flatten().map(text).collect();
        match names.len() {
            0 => {}
            1 => all.push(format!("the cookie {}", listed(&names))),
            _ => all.push(format!("the cookies {}", listed(&names))),
        }
        if unclear {
            all.push("an ambiguous cookie, which servers parse differently".to_owned());
        }
    }
    all.join(", and ")
}

/// The cache key.
fn keyed(request: &ParsedRequest, explained: &Explained) -> ExplanationStep {
    let key = key_of(request, explained);
    let names = |of: &str| -> Vec<String> {
        let all = key[of].as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let mut because = "scheme, host, path and query".to_owned();
    let (left_out, parts) = (names("ignored"), names("parts"));
    let by_route = key::left_out(&request.target, &explained.rules.key);
    let by_route: Vec<String> = by_route.map(|one| text(query::name(one))).collect();
    let is_by_route = |name: &String| by_route.contains(name);
    let (left_out, by_response): (Vec<_>, Vec<_>) = left_out.into_iter().partition(is_by_route);
    if !parts.is_empty() {
        because = format!("{because}, and {} on this route", listed(&parts));
    }
    if !left_out.is_empty() {
        because = format!("{because}; {} of the query is ignored", listed(&left_out));
    }
    if explained.is_simplified {
        let path = text(key::split_query(&request.target).0);
        let what = if by_response.is_empty() {
            "the order".to_owned()
        } else {
            listed(&by_response)
        };
        because = format!("{because}; {what} of the query is ignored by No-Vary-Search of {path}");
    }
    let url = key["url"].as_str().unwrap_or_default();
    ExplanationStep::new(format!("cache key {url}"), because).by("RFC 9111 §2")
}

/// Parts of the key besides the URL, by name only.
pub(super) fn key_of(request: &ParsedRequest, explained: &Explained) -> Value {
    let rules = &explained.rules;
    let kept = key::target_of(&explained.key).unwrap_or_default();
    let (kept, all) = (parameters_of(&kept), parameters_of(&request.target));
    let kept: HashSet<&[u8]> = kept.collect();
    let left_out = all.filter(|one| !one.is_empty() && !kept.contains(one));
    let left_out = left_out.map(|parameter| text(query::name(parameter)));
    let mut parts: Vec<String> = rules.key.headers.clone();
    parts.extend(
        rules
            .key
            .cookies
            .iter()
            .map(|name| format!("cookie {name}")),
    );
    let trusted = trusted_key_fields(request, explained);
    parts.extend(trusted.filter(|name| !rules.key.headers.contains(name)));
    json!({
        "url": location(&explained.key),
        "ignored": left_out.collect::<Vec<_>>(),
        "parts": parts,
    })
}

fn parameters_of(target: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (_, query) = key::split_query(target);
    query.into_iter().flat_map(query::parameters)
}

/// Names of the forwarding fields that are part of the key, as a trusted proxy sent them.
fn trusted_key_fields<'a>(
    request: &'a ParsedRequest,
    explained: &'a Explained,
) -> impl Iterator<Item = String> + 'a {
    let fields: Fields<'a> = request.fields();
    let names =
        microcache_policy::trust::keyed_by(fields, request.is_trusted, &explained.rules.request);
    names.map(|name| String::from_utf8_lossy(name).to_lowercase())
}

/// Result of the lookup and its usability.
fn lookup_step(explained: &Explained) -> ExplanationStep {
    match explained.decision {
        Decision::Stored { reuse, tier, .. } => {
            let place = tier.map_or("memory", Detail::as_str);
            let explanation =
                tier.map_or_else(|| stored(explained, reuse), |_| reuse.explanation());
            ExplanationStep::of(format!("served from {place}"), explanation)
        }
        Decision::Ask {
            reuse: Some(reuse), ..
        } => ExplanationStep::of(
            "stored response selected, validated by the origin first",
            reuse.explanation(),
        ),
        Decision::Ask { forward, .. } | Decision::OnlyIfCached(forward) => {
            let forward = lookup_forward(explained, forward);
            ExplanationStep::of("no stored response matches", forward.explanation())
        }
        Decision::Pass(forward, _) => ExplanationStep::of("no lookup", forward.explanation()),
    }
}

/// A stale response is used past its window while its refresh is in progress.
fn stored(explained: &Explained, reuse: Reuse) -> Explanation {
    let selected = explained.variants.iter().find(|one| one.is_selected);
    let own = selected
        .map(|one| microcache_policy::reuse(&one.lifetime, &explained.facts, explained.now));
    match own {
        Some(Reuse::Revalidate(RevalidationReason::Expired)) if reuse == Reuse::Stale => {
            Explanation {
                because: "the stored response is past its stale window, but its refresh is in progress",
                ..reuse.explanation()
            }
        }
        _ => reuse.explanation(),
    }
}

/// A request with credentials reports `request` regardless of the stored responses.
fn lookup_forward(explained: &Explained, forward: Forward) -> Forward {
    match forward {
        Forward::Request if explained.variants.is_empty() => Forward::UriMiss,
        Forward::Request => Forward::VaryMiss,
        other => other,
    }
}
