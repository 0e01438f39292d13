//! The request's way, step by step: its route, what it asks for, its key, what is found there.

use microcache_engine::{Bypass, Decision, Explained};
use microcache_policy::{
    Detail, Explanation, Fields, Forward, Handling, LeftOut, Reuse, Why, cookies, key,
};
use microcache_proxy::{Outlook, Rated, Read};
use serde_json::{Value, json};

use super::hosted;
use super::told::others_wait;
use super::words::{Step, listed, text};
use crate::entries::location;

/// All steps until it is known where the answer comes from.
pub(super) fn steps(outlook: &Outlook) -> Vec<Step> {
    let Outlook {
        request, explained, ..
    } = outlook;
    let mut steps = vec![Step::new(
        format!("it takes the route `{}`", explained.route_name),
        "that is the first route that takes its host, path and method",
    )];
    steps.extend(outlook.rated.as_ref().map(rated));
    if let Some(own) = outlook.own {
        steps.push(Step::of(
            "it is answered here and goes no further",
            own.explanation(),
        ));
        return steps;
    }
    if let Some(place) = outlook.hosted {
        steps.extend(hosted::steps(place, outlook));
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
        steps.push(Step::new(
            format!("it waits for a request to the origin that is under way{others}"),
            "one is enough for all who want the same",
        ));
    }
    if matches!(explained.decision, Decision::OnlyIfCached(_)) {
        let told = Detail::OnlyIfCached.explanation();
        steps.push(Step::of("it is answered 504", told));
    }
    steps
}

/// Fields of the request that the application does not see. None where it is sent whole.
fn left_out(explained: &Explained) -> Option<Step> {
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
    let LeftOut { withheld, dropped } = &explained.left_out;
    if !withheld.is_empty() {
        let step = Step::new(
            format!("the application is asked without {}", names(withheld)),
            "the answer is for all clients, and the page may depend on a field that others do not send",
        );
        return Some(step.unless(
            "if it selects the page, add the field to `key.headers` on the route, or to the application's `Vary`",
        ));
    }
    (!dropped.is_empty()).then(|| {
        Step::new(
            format!("the application is asked without {}", names(dropped)),
            "the answer is for all clients, and these fields are about one",
        )
    })
}

/// What its route lets through.
fn rated(rated: &Rated) -> Step {
    let Rated {
        quota, by, left, ..
    } = rated;
    let of = if rated.only_misses {
        "requests that are not answered from memory"
    } else {
        "requests"
    };
    Step::new(
        format!("its route lets through {quota}, and {left} more of this one now"),
        format!("`rate` counts {of} by {by}"),
    )
}

/// Why it waits for nobody else's answer; and why the last one could not be shared, if that is remembered.
fn by_itself(detail: Detail, remembered: Option<Detail>) -> Step {
    let told = detail.explanation();
    let step = Step::of("it asks the origin by itself, and waits for nobody", told);
    let Some(why) = remembered else {
        return step;
    };
    let last = why.explanation();
    Step {
        because: format!("{}: {}", told.because, last.because),
        rfc: last.rfc,
        remedy: last.remedy.or(told.remedy).map(str::to_owned),
        ..step
    }
}

/// What the request is to a cache.
fn asked_for(request: &Read, explained: &Explained) -> Step {
    const STRAIGHT: &str = "it goes straight to the application, and nothing of it is stored";
    if explained.passes {
        return Step::new(STRAIGHT, "the route says `pass`")
            .unless("take `pass` out of the route, or put a route before it that takes this url");
    }
    match explained.bypass {
        Some(Bypass::Condition) => {
            return Step::new(STRAIGHT, "a `bypass` condition of the route holds for it")
                .unless("change `bypass` on the route, or leave out of the request what it names");
        }
        Some(Bypass::Path) => return Step::of(STRAIGHT, Detail::AmbiguousPath.explanation()),
        None => {}
    }
    match explained.facts.handling() {
        Handling::Pass(why) => Step::of(STRAIGHT, why.explanation()),
        Handling::Credentialed => Step::new(
            "only a response that says that it can be shared may answer it or be stored, and it waits for nobody",
            format!("it has {}", credentials(request, explained)),
        )
        .by("RFC 9111 §3.5")
        .unless(
            "have the application send `Cache-Control: public, max-age=60` if everybody gets the same; cookies that \
             it does not look at can be named in `ignore_cookies`, those that select the page in `key.cookies`",
        ),
        Handling::Cache => Step::new(
            "the cache may answer it",
            "it is a GET or HEAD without a body and without credentials that count",
        )
        .by("RFC 9111 §4"),
    }
}

/// What makes it personal: names, and no values.
fn credentials(request: &Read, explained: &Explained) -> String {
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

/// What it is looked up under.
fn keyed(request: &Read, explained: &Explained) -> Step {
    let told = key_of(request, explained);
    let names = |of: &str| -> Vec<String> {
        let all = told[of].as_array().into_iter().flatten();
        all.filter_map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    let mut because = "scheme, host, path and query are the key".to_owned();
    let (left_out, parts) = (names("left_out"), names("parts"));
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
    Step::new(format!("it is looked up as {url}"), because).by("RFC 9111 §2")
}

/// What makes up the key. Of what is in it beside the url only names.
pub(super) fn key_of(request: &Read, explained: &Explained) -> Value {
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
        "left_out": left_out.collect::<Vec<_>>(),
        "parts": parts,
    })
}

fn believed<'a>(request: &'a Read, explained: &'a Explained) -> impl Iterator<Item = String> + 'a {
    let fields: Fields<'a> = request.fields();
    let names =
        microcache_policy::trust::keyed_by(fields, request.vouched, &explained.rules.request);
    names.map(|name| String::from_utf8_lossy(name).to_lowercase())
}

/// What is found there, and what it is good for.
fn looked_up(explained: &Explained) -> Step {
    match explained.decision {
        Decision::Stored { reuse, tier, .. } => {
            let place = tier.map_or("memory", Detail::as_str);
            let told = tier.map_or_else(|| stored(explained, reuse), |_| reuse.explanation());
            Step::of(
                format!("it is answered from what is stored ({place})"),
                told,
            )
        }
        Decision::Ask {
            reuse: Some(reuse), ..
        } => Step::of(
            "a stored response is selected, and the origin is asked first",
            reuse.explanation(),
        ),
        Decision::Ask { forward, .. } | Decision::OnlyIfCached(forward) => {
            let forward = looked_for(explained, forward);
            Step::of("no stored response can answer it", forward.explanation())
        }
        Decision::Pass(forward, _) => Step::of("nothing is looked up", forward.explanation()),
    }
}

/// What is stale beyond its window is used all the same while a refresh of it is under way.
fn stored(explained: &Explained, reuse: Reuse) -> Explanation {
    let selected = explained.variants.iter().find(|one| one.is_selected);
    let own = selected
        .map(|one| microcache_policy::reuse(&one.lifetime, &explained.facts, explained.now));
    match own {
        Some(Reuse::Revalidate(Why::Expired)) if reuse == Reuse::Stale => Explanation {
            because: "what is stored is stale, and beyond its window, but a refresh of it is under way",
            ..reuse.explanation()
        },
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
