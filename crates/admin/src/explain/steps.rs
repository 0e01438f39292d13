//! The request's way, step by step: its route, what it asks for, its key, what is found there.

use microcache_engine::{Bypass, Decision, Explained};
use microcache_policy::{
    Detail, Explanation, Fields, Forward, Handling, OmittedFields, Reuse, RevalidationReason,
    cookies, key,
};
use microcache_proxy::{ParsedRequest, RateLimitState, RequestExplanation};
use serde_json::{Value, json};

use super::builtin_routes;
use super::phrases::{ExplanationStep, listed, text};
use super::report::others_wait;
use crate::entries::location;

/// All steps until it is known where the answer comes from.
pub(super) fn steps(outlook: &RequestExplanation) -> Vec<ExplanationStep> {
    let RequestExplanation {
        request, explained, ..
    } = outlook;
    let mut steps = vec![ExplanationStep::new(
        format!("it takes the route `{}`", explained.route_name),
        "that is the first route that takes its host, path and method",
    )];
    steps.extend(outlook.rated.as_ref().map(rated));
    if let Some(own) = outlook.own {
        steps.push(ExplanationStep::of(
            "it is answered here and goes no further",
            own.explanation(),
        ));
        return steps;
    }
    if let Some(place) = outlook.hosted {
        steps.extend(builtin_routes::steps(place, outlook));
        return steps;
    }
    steps.push(asked_for(request, explained));
    if let Decision::Pass(..) = explained.decision {
        return steps;
    }
    steps.push(keyed(request, explained));
    steps.push(looked_up(explained));
    if let Decision::Ask { detail, .. } = explained.decision
        && let Some(detail) = detail.filter(|detail| *detail != Detail::Credentials)
    {
        steps.push(by_itself(detail, explained.remembered));
    }
    steps.extend(left_out(explained));
    if let Decision::Ask { joins: true, .. } = explained.decision {
        let others = others_wait(explained);
        steps.push(ExplanationStep::new(
            format!("it waits for a request to the origin that is under way{others}"),
            "one is enough for all who want the same",
        ));
    }
    if matches!(explained.decision, Decision::OnlyIfCached(_)) {
        let told = Detail::OnlyIfCached.explanation();
        steps.push(ExplanationStep::of("it is answered 504", told));
    }
    steps
}

/// Fields of the request that the application does not see. None where it is sent whole.
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
            format!("the application is asked without {}", names(withheld)),
            "the answer is for all clients, and the page may depend on a field that others do not send",
        );
        return Some(step.unless(
            "if it selects the page, add the field to `key.headers` on the route, or to the application's `Vary`",
        ));
    }
    (!dropped.is_empty()).then(|| {
        ExplanationStep::new(
            format!("the application is asked without {}", names(dropped)),
            "the answer is for all clients, and these fields are about one",
        )
    })
}

/// Rate limit of the route.
fn rated(rated: &RateLimitState) -> ExplanationStep {
    let RateLimitState {
        quota, by, left, ..
    } = rated;
    let of = if rated.only_misses {
        "requests that are not answered from memory"
    } else {
        "requests"
    };
    ExplanationStep::new(
        format!("its route lets through {quota}, and {left} more of this one now"),
        format!("`rate` counts {of} by {by}"),
    )
}

/// Explains why the request is not coalesced, and, if remembered, why the last response could not be shared.
fn by_itself(detail: Detail, remembered: Option<Detail>) -> ExplanationStep {
    let told = detail.explanation();
    let step = ExplanationStep::of("it asks the origin by itself, and waits for nobody", told);
    let Some(why) = remembered else {
        return step;
    };
    let last = why.explanation();
    ExplanationStep {
        reason: format!("{}: {}", told.because, last.because),
        rfc: last.rfc,
        hint: last.remedy.or(told.remedy).map(str::to_owned),
        ..step
    }
}

/// Classifies the request: cacheable, pass, or personal.
fn asked_for(request: &ParsedRequest, explained: &Explained) -> ExplanationStep {
    const STRAIGHT: &str = "it goes straight to the application, and nothing of it is stored";
    if explained.passes {
        return ExplanationStep::new(STRAIGHT, "the route says `pass`")
            .unless("take `pass` out of the route, or put a route before it that takes this url");
    }
    match explained.bypass {
        Some(Bypass::Condition) => {
            return ExplanationStep::new(
                STRAIGHT,
                "a `bypass` condition of the route holds for it",
            )
            .unless("change `bypass` on the route, or leave out of the request what it names");
        }
        Some(Bypass::Path) => {
            return ExplanationStep::of(STRAIGHT, Detail::AmbiguousPath.explanation());
        }
        None => {}
    }
    match explained.facts.handling() {
        Handling::Pass(why) => ExplanationStep::of(STRAIGHT, why.explanation()),
        Handling::Credentialed => ExplanationStep::new(
            "only a response that says that it can be shared may answer it or be stored, and it waits for nobody",
            format!("it has {}", credentials(request, explained)),
        )
        .by("RFC 9111 §3.5")
        .unless(
            "have the application send `Cache-Control: public, max-age=60` if everybody gets the same; cookies that \
             it does not look at can be named in `ignore_cookies`, those that select the page in `key.cookies`",
        ),
        Handling::Cache => ExplanationStep::new(
            "the cache may answer it",
            "it is a GET or HEAD without a body and without credentials that count",
        )
        .by("RFC 9111 §4"),
    }
}

/// Names, without values, of the fields that make the request personal.
fn credentials(request: &ParsedRequest, explained: &Explained) -> String {
    let mut all = Vec::new();
    if explained.facts.credentials().authorization {
        let names = microcache_policy::identities(request.fields(), &explained.rules);
        let mut names: Vec<_> = names.map(|name| format!("`{}`", text(name))).collect();
        if names.is_empty() {
            names.push("a connection that its client has signed in on".to_owned());
        }
        all.append(&mut names);
    }
    if explained.facts.credentials().cookie {
        let names = cookies::personal(request.fields(), &explained.rules);
        let unclear = names.iter().any(Option::is_none);
        let names: Vec<_> = names.into_iter().flatten().map(text).collect();
        match names.len() {
            0 => {}
            1 => all.push(format!("the cookie {}, which counts", listed(&names))),
            _ => all.push(format!("the cookies {}, which count", listed(&names))),
        }
        if unclear {
            all.push("a cookie that programs read in different ways".to_owned());
        }
    }
    all.join(", and ")
}

/// The cache key.
fn keyed(request: &ParsedRequest, explained: &Explained) -> ExplanationStep {
    let told = key_of(request, explained);
    let names = |of: &str| -> Vec<String> {
        let all = told[of].as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let mut because = "scheme, host, path and query are the key".to_owned();
    let (left_out, parts) = (names("ignored"), names("parts"));
    if !parts.is_empty() {
        because = format!("{because}, and on this route {}", listed(&parts));
    }
    if !left_out.is_empty() {
        because = format!(
            "{because}; of the query, {} does not count there",
            listed(&left_out)
        );
    }
    let url = told["url"].as_str().unwrap_or_default();
    ExplanationStep::new(format!("it is looked up as {url}"), because).by("RFC 9111 §2")
}

/// Parts of the key besides the URL, by name only.
pub(super) fn key_of(request: &ParsedRequest, explained: &Explained) -> Value {
    let rules = &explained.rules;
    let left_out = key::left_out(&request.target, &rules.key).map(|parameter| {
        let name = parameter.split(|&b| b == b'=').next();
        text(name.unwrap_or_default())
    });
    let mut parts: Vec<String> = rules.key.headers.clone();
    parts.extend(
        rules
            .key
            .cookies
            .iter()
            .map(|name| format!("cookie {name}")),
    );
    let believed = believed(request, explained);
    parts.extend(believed.filter(|name| !rules.key.headers.contains(name)));
    json!({
        "url": location(&explained.key),
        "ignored": left_out.collect::<Vec<_>>(),
        "parts": parts,
    })
}

fn believed<'a>(
    request: &'a ParsedRequest,
    explained: &'a Explained,
) -> impl Iterator<Item = String> + 'a {
    let fields: Fields<'a> = request.fields();
    let names =
        microcache_policy::trust::keyed_by(fields, request.vouched, &explained.rules.request);
    names.map(|name| String::from_utf8_lossy(name).to_lowercase())
}

/// Result of the lookup and its usability.
fn looked_up(explained: &Explained) -> ExplanationStep {
    match explained.decision {
        Decision::Stored { reuse, tier, .. } => {
            let place = tier.map_or("memory", Detail::as_str);
            let told = tier.map_or_else(|| stored(explained, reuse), |_| reuse.explanation());
            ExplanationStep::of(
                format!("it is answered from what is stored ({place})"),
                told,
            )
        }
        Decision::Ask {
            reuse: Some(reuse), ..
        } => ExplanationStep::of(
            "a stored response is selected, and the origin is asked first",
            reuse.explanation(),
        ),
        Decision::Ask { forward, .. } | Decision::OnlyIfCached(forward) => {
            let forward = looked_for(explained, forward);
            ExplanationStep::of("no stored response can answer it", forward.explanation())
        }
        Decision::Pass(forward, _) => {
            ExplanationStep::of("nothing is looked up", forward.explanation())
        }
    }
}

/// A stale response is used beyond its window while a refresh of it is under way.
fn stored(explained: &Explained, reuse: Reuse) -> Explanation {
    let selected = explained.variants.iter().find(|one| one.is_selected);
    let own = selected
        .map(|one| microcache_policy::reuse(&one.lifetime, &explained.facts, explained.now));
    match own {
        Some(Reuse::Revalidate(RevalidationReason::Expired)) if reuse == Reuse::Stale => {
            Explanation {
                because: "what is stored is stale, and beyond its window, but a refresh of it is under way",
                ..reuse.explanation()
            }
        }
        _ => reuse.explanation(),
    }
}

/// A request with credentials says `request`, whatever is stored.
fn looked_for(explained: &Explained, forward: Forward) -> Forward {
    match forward {
        Forward::Request if explained.variants.is_empty() => Forward::UriMiss,
        Forward::Request => Forward::VaryMiss,
        other => other,
    }
}
