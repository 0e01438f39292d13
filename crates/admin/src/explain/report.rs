//! Report of an explanation: verdict, summary and steps.

use microcache_engine::{Decision, clock};
use microcache_policy::explain::span;
use microcache_policy::{
    CacheStatus, Detail, Forward, ResponseExplanation, ResponseFacts, Reuse, Storable, Times,
};
use microcache_proxy::{FetchedResponse, RequestExplanation};
use serde_json::{Value, json};

use super::phrases::{ExplanationStep, text};
use super::{builtin_routes, steps, stored};

/// Builds the report as JSON.
pub(super) fn report(outlook: &RequestExplanation) -> Value {
    let explained = &outlook.explained;
    let mut steps = steps::steps(outlook);
    let selected = explained.variants.iter().find(|one| one.is_selected);
    let fetched = outlook
        .fetched
        .as_ref()
        .map(|one| FetchReport::of(one, outlook));
    if let Some(answer) = &fetched {
        steps.push(answer.step());
    }
    let is_kept = fetched.as_ref().is_none_or(|answer| answer.stored.is_ok());
    let is_hosted = outlook.hosted.is_some();
    match selected.filter(|_| is_kept && !is_hosted) {
        Some(one) => {
            steps.extend(stored::steps(one, explained));
            steps.extend(explained.compression.map(stored::compression));
        }
        None if fetched.is_none() && is_open(outlook) => steps.push(unknown()),
        None => {}
    }
    let passes = matches!(explained.decision, Decision::Pass(..));
    let has_key = !passes && !is_hosted && outlook.own.is_none();
    let all = explained.variants.iter();
    json!({
        "verdict": verdict(outlook),
        "cacheable": cacheable(outlook, fetched.as_ref()),
        "summary": sentence(outlook, fetched.as_ref()),
        "cache_status": status_of(outlook),
        "request": request(outlook),
        "route": explained.route_name,
        "key": has_key.then(|| steps::key_of(&outlook.request, explained)),
        "omitted_fields": {
            "withheld": names(&explained.left_out.withheld),
            "dropped": names(&explained.left_out.dropped),
        },
        "steps": steps,
        "stored": all.map(|one| stored::variant(one, explained)).collect::<Vec<_>>(),
        "fetched": fetched.map(|answer| answer.view()),
    })
}

fn names(names: &[Vec<u8>]) -> Vec<String> {
    names.iter().map(|name| text(name)).collect()
}

/// Returns the verdict.
fn verdict(outlook: &RequestExplanation) -> &'static str {
    if outlook.own.is_some() {
        return "own";
    }
    match outlook.explained.decision {
        Decision::Pass(..) => "pass",
        Decision::Ask { joins: true, .. } => "collapsed",
        Decision::Stored {
            reuse: Reuse::Stale,
            ..
        } => "stale",
        Decision::Stored { .. } => "hit",
        Decision::Ask {
            reuse: Some(Reuse::Revalidate(_)),
            ..
        } => "revalidate",
        Decision::Ask { .. } => "miss",
        Decision::OnlyIfCached(_) => "only-if-cached",
    }
}

/// Returns true if the response comes, or would come, from the cache; `None` if only the origin could decide.
fn cacheable(outlook: &RequestExplanation, fetched: Option<&FetchReport<'_>>) -> Option<bool> {
    if let Some(answer) = fetched {
        return Some(answer.stored.is_ok());
    }
    if outlook.own.is_some() {
        return Some(false);
    }
    if let Some(place) = outlook.hosted {
        return Some(builtin_routes::is_available(place, outlook));
    }
    match outlook.explained.decision {
        // A recent response was not storable, or the stored one may not be served to this client.
        Decision::Pass(..)
        | Decision::Ask {
            detail: Some(Detail::HitForMiss | Detail::TooLarge),
            ..
        }
        | Decision::Ask {
            reuse: Some(Reuse::NotShareable),
            ..
        } => Some(false),
        Decision::Stored { .. } | Decision::Ask { reuse: Some(_), .. } => Some(true),
        Decision::Ask { reuse: None, .. } | Decision::OnlyIfCached(_) => None,
    }
}

fn is_open(outlook: &RequestExplanation) -> bool {
    cacheable(outlook, None).is_none()
}

fn unknown() -> ExplanationStep {
    ExplanationStep::new(
        "storing undecided",
        "it depends on the response, and the origin was not contacted",
    )
    .by("RFC 9111 §3")
    .unless("`microcache explain --fetch` contacts the origin")
}

/// Summarizes the explanation in one sentence.
fn sentence(outlook: &RequestExplanation, fetched: Option<&FetchReport<'_>>) -> String {
    let explained = &outlook.explained;
    if let (Some(place), None) = (outlook.hosted, outlook.own) {
        return builtin_routes::sentence(place, outlook);
    }
    if let Some(response) = &outlook.route_response {
        return format!("The request is {}.", steps::route_response(response));
    }
    let explanation = explained.decision.explanation();
    let first = match (outlook.own, explained.decision) {
        (Some(own), _) => format!(
            "Answered by Microcache, not forwarded: {}.",
            own.explanation().because
        ),
        (None, Decision::Pass(Forward::Bypass, None)) => {
            "Passed to the origin by a rule of the route.".to_owned()
        }
        (None, Decision::Pass(..)) => format!("Passed to the origin: {}.", explanation.because),
        (None, Decision::Stored { reuse, tier, .. }) => {
            let place = tier.map_or("memory", Detail::as_str);
            let from = explained.variants.iter().rfind(|one| one.is_selected);
            let left = from.map(|one| one.lifetime.ttl(explained.now).unsigned_abs());
            let left_for = span(left.unwrap_or_default());
            match reuse {
                Reuse::Stale => format!(
                    "Served from {place}, stale for {left_for}, while one request revalidates it."
                ),
                _ => format!("Served from {place}, fresh for another {left_for}."),
            }
        }
        (None, Decision::Ask { joins: true, .. }) => {
            let others = steps::others_wait(explained);
            format!("Waits for an origin request in progress{others}.")
        }
        (None, Decision::Ask { detail, reuse, .. }) => {
            let explanation = match (detail, explained.remembered) {
                (Some(Detail::Credentials), _) if reuse.is_none() => {
                    "no shareable response is stored, and the request is personal".to_owned()
                }
                (_, Some(why)) => format!("{}: {}", explanation.because, why.explanation().because),
                _ => explanation.because.to_owned(),
            };
            let verb = match fetched {
                Some(_) => "Fetched",
                None => "Would be fetched",
            };
            format!("{verb} from the origin: {explanation}.")
        }
        (None, Decision::OnlyIfCached(_)) => format!("Answered with 504: {}.", explanation.because),
    };
    match fetched {
        Some(answer) => format!("{first} {}", answer.sentence()),
        None => first,
    }
}

/// The `Cache-Status` value of the response.
fn status_of(outlook: &RequestExplanation) -> String {
    let own = outlook.own.map(|detail| CacheStatus {
        detail: Some(detail),
        ..CacheStatus::default()
    });
    field(&own.unwrap_or_else(|| outlook.explained.decision.cache_status()))
}

fn field(status: &CacheStatus) -> String {
    let mut out = Vec::new();
    status.write(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Describes the request, with the names of its fields only.
fn request(outlook: &RequestExplanation) -> Value {
    let read = &outlook.request;
    let names = read.fields().iter().map(|(name, _)| text(name));
    json!({
        "method": read.method.as_str(),
        "host": text(&read.host),
        "target": text(&read.target),
        "headers": names.collect::<Vec<_>>(),
    })
}

/// The origin's response and the decision about it.
struct FetchReport<'a> {
    fetched: &'a FetchedResponse,
    /// Status of the origin's own response; 304 if it confirmed the stored one.
    status: u16,
    /// Whether the response is storable; the reason otherwise.
    stored: Result<(), ExplanationStep>,
    /// The fetch was made only to explain: the request itself is served from the stored response.
    is_aside: bool,
    /// Reason for which a stored response is served instead.
    stands_in: Option<Detail>,
    seconds: f64,
}

impl<'a> FetchReport<'a> {
    fn of(fetched: &'a FetchedResponse, outlook: &RequestExplanation) -> Self {
        let explained = &outlook.explained;
        let answer = &fetched.answer;
        let is_aside = matches!(
            explained.decision,
            Decision::Stored { .. } | Decision::OnlyIfCached(_)
        );
        let status = answer.cache_status.fwd_status.unwrap_or(answer.status);
        let stands_in = answer.cache_status.detail.filter(|detail| {
            answer.cache_status.hit && !matches!(detail, Detail::Tier(_) | Detail::MemcachedPage)
        });
        let is_there = explained.variants.iter().any(|one| one.is_selected);
        let stored = if fetched.failed {
            Err(not_stored(
                answer
                    .cache_status
                    .detail
                    .unwrap_or(Detail::OriginUnreachable),
            ))
        } else if !is_aside && (answer.cache_status.hit || answer.cache_status.stored) {
            kept(fetched, is_there)
        } else {
            judged(fetched, outlook, status, is_aside)
        };
        Self {
            fetched,
            status,
            stored,
            is_aside,
            stands_in,
            seconds: fetched.received.since(fetched.sent) as f64 / 1000.0,
        }
    }

    fn step(&self) -> ExplanationStep {
        let status = self.status;
        if let Some(why) = self.stands_in {
            let what = "the origin was contacted, and the stored response is served";
            return ExplanationStep::of(what, why.explanation());
        }
        match &self.stored {
            Ok(()) if self.is_aside => ExplanationStep::new(
                format!("the origin was contacted and answered {status}, which would be stored"),
                "the response is storable; it was discarded, since the request itself is served from the stored \
                 response",
            )
            .by("RFC 9111 §3"),
            Ok(()) => ExplanationStep::new(
                format!("the origin answered {status}, stored"),
                "the response is storable, and the response or the route sets its lifetime",
            )
            .by("RFC 9111 §3"),
            Err(why) => ExplanationStep {
                message: format!("the origin answered {status}, {}", why.message),
                ..why.clone()
            },
        }
    }

    fn sentence(&self) -> String {
        let status = self.status;
        if let Some(why) = self.stands_in {
            let because = why.explanation().because;
            return format!("The stored response is served: {because}.");
        }
        match &self.stored {
            _ if self.fetched.failed => {
                format!("No response from the origin: {}.", self.because())
            }
            Ok(()) if self.is_aside => {
                format!("Contacted now, the origin answered {status}, which would be stored.")
            }
            Ok(()) => format!("The origin answered {status}, which is stored."),
            Err(_) => format!(
                "The origin answered {status}, which is not stored: {}.",
                self.because()
            ),
        }
    }

    fn because(&self) -> &str {
        self.stored.as_ref().err().map_or("", |why| &why.reason)
    }

    fn view(&self) -> Value {
        json!({
            "status": self.status,
            "cache_status": (!self.is_aside).then(|| field(&self.fetched.answer.cache_status)),
            "stored": !self.is_aside && self.stored.is_ok(),
            "seconds": self.seconds,
        })
    }
}

const NOT_STORED: &str = "not stored";

fn not_stored(why: Detail) -> ExplanationStep {
    ExplanationStep::of(NOT_STORED, why.explanation())
}

/// Explains a storable response.
fn kept(fetched: &FetchedResponse, is_there: bool) -> Result<(), ExplanationStep> {
    if is_there || !fetched.is_whole {
        return Ok(());
    }
    Err(ExplanationStep::new(
        NOT_STORED,
        "the response exceeded the size limit, or was purged or evicted meanwhile",
    )
    .unless("raise `max_object` on the route, or `memory`"))
}

/// Storage decision about a response, with the reason against it.
fn judged(
    fetched: &FetchedResponse,
    outlook: &RequestExplanation,
    status: u16,
    is_aside: bool,
) -> Result<(), ExplanationStep> {
    let (explained, answer) = (&outlook.explained, &fetched.answer);
    // A 304 that also forbids storing.
    if status == 304
        && let Some(detail) = answer.cache_status.detail
    {
        return Err(not_stored(detail));
    }
    let facts = if is_aside {
        explained.facts.as_fill()
    } else {
        explained.facts
    };
    let read = ResponseFacts::read(answer.fields(), &explained.rules);
    let times = Times {
        request: fetched.sent,
        response: fetched.received,
        date: clock::date(fetched.received),
    };
    let account = ResponseExplanation::of(&facts, status, &read, times);
    match (account.verdict, answer.cache_status.detail) {
        (Storable::No(why), _) => Err(ExplanationStep::of(NOT_STORED, why.explanation())),
        (Storable::Yes(lifetime), _) if lifetime.is_anonymous() => {
            let stored = (!fetched.has_token).then_some(());
            stored.ok_or_else(|| not_stored(Detail::FormToken))
        }
        (Storable::Yes(_), _) if is_aside => Ok(()),
        (Storable::Yes(_), Some(detail)) if detail != Detail::Credentials => Err(not_stored(detail)),
        (Storable::Yes(_), _) => Err(ExplanationStep::new(
            NOT_STORED,
            "range and conditional requests are forwarded unchanged, and their responses are not stored",
        )
        .by("RFC 9111 §3.3")
        .unless("remove `Range` and conditions such as `If-None-Match`")),
    }
}
