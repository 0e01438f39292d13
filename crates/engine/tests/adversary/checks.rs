//! Properties that every conversation must have.

use std::fmt;

use super::model::{HONEST_SECRET, HOSTILE_SECRET, Page, TestRequest, Version, joined};
use super::world::{Act, Answer, Got, LARGEST, Log, Plan, VARIANTS};

/// The most milliseconds a response may be stale: the stale window, and slow refreshes.
const STALE: u64 = 45_000;
/// The longest transfer of a storable page's body, in milliseconds.
const BODY: u64 = 100;
/// Longer than any client should wait, in milliseconds.
const LONGEST: u64 = 40_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A response that the origin would not have given to this client.
    NotItsOwn,
    /// Another client's secret or cookie.
    Secret,
    /// An error or a truncated body while the origin was healthy.
    Failed,
    /// A fresh page that was no longer stored.
    Lost,
    /// A storable page that was not stored.
    NotKept,
    /// More than one concurrent request for one page.
    Stampede,
    /// A response that took too long.
    Slow,
}

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) about: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.about)
    }
}

/// A stored page: when it was requested and stored, and until when it is fresh.
#[derive(Clone, Copy)]
struct Kept {
    requested: u64,
    since: u64,
    until: u64,
}

/// A finished conversation under review.
struct Review<'a> {
    plan: &'a Plan,
    log: &'a Log,
    faults: Vec<Fault>,
}

pub(crate) fn faults(plan: &Plan, log: &Log) -> Vec<Fault> {
    let mut review = Review {
        plan,
        log,
        faults: Vec::new(),
    };
    for answer in &log.answers {
        match &plan.steps[answer.step].act {
            Act::Honest(requested, _) => review.check_honest(requested, answer),
            Act::Hostile(..) => review.check_secret(answer, HONEST_SECRET),
            Act::Outage(_) => {}
        }
    }
    for page in &plan.pages {
        review.check_hits(page);
        review.check_collapse(page);
    }
    review.faults
}

impl<'a> Review<'a> {
    fn check_honest(&mut self, requested: &TestRequest, answer: &Answer) {
        self.check_secret(answer, HOSTILE_SECRET);
        let Some(got) = &answer.got else { return };
        if answer.ended - answer.began > LONGEST {
            self.fault(Kind::Slow, answer, got);
        }
        let outage = self.outage(answer.began.saturating_sub(1_000), answer.ended);
        if got.status >= 500 || !got.is_whole {
            if !outage {
                self.fault(Kind::Failed, answer, got);
            }
            return;
        }
        if joined(&got.fields, "set-cookie").is_some() {
            self.fault(Kind::Secret, answer, got);
        }
        let page = self.page(requested);
        let fits = self.versions(page, answer).iter().any(|&version| {
            let is_it = |requested| {
                let reply = page.answer(requested, version, 0);
                reply.matches(requested, got.status, &got.fields, &got.body)
            };
            // A partial or a 304 response is optional for a cache.
            is_it(requested) || is_it(&requested.plain())
        });
        if !fits {
            self.fault(Kind::NotItsOwn, answer, got);
        }
    }

    fn check_secret(&mut self, answer: &Answer, secret: &str) {
        let Some(got) = &answer.got else { return };
        let body = String::from_utf8_lossy(&got.body);
        if body.contains(secret) || got.fields.iter().any(|(_, value)| value.contains(secret)) {
            self.fault(Kind::Secret, answer, got);
        }
    }

    /// Every version that a response may show: the current one, or one that is not too stale; but
    /// none from before an edit that was complete when the request came.
    fn versions(&self, page: &Page, answer: &Answer) -> Vec<Version> {
        let failures = self.plan.steps.iter().any(|step| match &step.act {
            Act::Outage(_) => true,
            Act::Hostile(requested, _) => {
                requested.target == page.path && joined(&requested.fields, "x-crash").is_some()
            }
            Act::Honest(..) => false,
        });
        let from = if failures {
            0
        } else {
            answer.began.saturating_sub(page.fresh + STALE)
        };
        let editions = from / page.period..=answer.ended / page.period;
        let least = self
            .edits(page)
            .filter(|(edit, _)| edit.ended <= answer.began)
            .map(|(_, number)| number)
            .max()
            .unwrap_or(0);
        let most = self.edits_seen(page, answer.ended) as u64;
        editions
            .flat_map(|edition| (least..=most).map(move |edits| Version { edits, edition }))
            .collect()
    }

    /// The unsafe requests that were answered, each with the number of its edit.
    fn edits(&self, page: &Page) -> impl Iterator<Item = (&Answer, u64)> {
        self.log.answers.iter().filter_map(move |answer| {
            let requested = self.requested(answer)?;
            let number = joined(&answer.got.as_ref()?.fields, "x-edit")?
                .parse()
                .ok()?;
            (requested.target == page.path).then_some((answer, number))
        })
    }

    /// The number of unsafe requests that the origin had received by then.
    fn edits_seen(&self, page: &Page, until: u64) -> usize {
        let unsafe_method =
            |requested: &TestRequest| matches!(requested.method.as_str(), "POST" | "DELETE");
        let seen = self.log.seen.iter();
        seen.filter(|seen| {
            seen.at <= until && seen.requested.target == page.path && unsafe_method(&seen.requested)
        })
        .count()
    }

    /// Checks that a page stored for honest clients is served to them until it is stale or changed.
    fn check_hits(&mut self, page: &Page) {
        let mut kept: Option<Kept> = None;
        for answer in self.visits(page) {
            let got = answer.got.as_ref().expect("visits have an answer");
            if got.status >= 500 {
                continue;
            }
            // A disturbed page does not count until it has been seen again.
            kept = kept.filter(|kept| !self.disturbed(page, kept.requested, answer.ended));
            let is_kept = kept.is_some_and(|kept| (kept.since..kept.until).contains(&answer.began));
            if is_kept && !got.hit {
                self.fault(Kind::Lost, answer, got);
            }
            // A HEAD that is sent directly brings nothing to store.
            let is_head = self
                .requested(answer)
                .is_some_and(|requested| requested.method == "HEAD");
            let alone = !got.hit && !got.collapsed && !is_head;
            if alone && !got.stored && !self.disturbed(page, answer.began, answer.ended) {
                self.fault(Kind::NotKept, answer, got);
            }
            let fresh_for = match got.ttl {
                Some(ttl) if got.hit => u64::try_from(ttl).unwrap_or(0) * 1_000,
                _ if got.stored => page.fresh,
                _ => 0,
            };
            let until = answer.began + fresh_for;
            if kept.is_none_or(|kept| kept.until < until) && fresh_for > 0 {
                // The head, and all of a HEAD response, may arrive while the body is still coming.
                let (requested, since) =
                    (answer.began, answer.ended + if got.hit { 0 } else { BODY });
                kept = Some(Kept {
                    requested,
                    since,
                    until,
                });
            }
        }
    }

    /// Returns true if the page may have been lost in between: by an edit, an outage, or too many
    /// variants.
    fn disturbed(&self, page: &Page, from: u64, to: u64) -> bool {
        let hostile = self.log.answers.iter().filter(|answer| {
            let requested = self
                .requested(answer)
                .filter(|requested| requested.target == page.path);
            let is_hostile = matches!(self.plan.steps[answer.step].act, Act::Hostile(..));
            requested.is_some() && is_hostile && answer.ended >= from && answer.began <= to
        });
        let edits = self.log.seen.iter().any(|seen| {
            seen.requested.target == page.path
                && matches!(seen.requested.method.as_str(), "POST" | "DELETE")
                && (from.saturating_sub(LONGEST)..=to).contains(&seen.at)
        });
        edits
            || self.outage(from, to)
            || page.has_any_number_of_variants() && hostile.count() + 1 >= VARIANTS
    }

    /// Checks that concurrent honest requests cost one origin request, or two while the page's
    /// `Vary` was unknown. After two requests that made the origin fail, each is sent directly.
    fn check_collapse(&mut self, page: &Page) {
        for (number, step) in self.plan.steps.iter().enumerate() {
            let Act::Honest(requested, count) = &step.act else {
                continue;
            };
            let is_kept = self.is_kept(page, requested) && !page.may_depend_on_anything();
            if *count < 2 || requested.target != page.path || !is_kept {
                continue;
            }
            let own = joined(&requested.fields, "x-step");
            let seen = self.log.seen.iter();
            let cost = seen
                .filter(|seen| joined(&seen.requested.fields, "x-step") == own)
                .count();
            let answers = self
                .log
                .answers
                .iter()
                .filter(|answer| answer.step == number);
            let last = answers
                .max_by_key(|answer| answer.ended)
                .expect("honest clients wait");
            let disturbed = self.outage(step.at.saturating_sub(1_000), last.ended)
                || self.crashed(page, step.at, last.ended)
                || self.edits_seen(page, last.ended)
                    > self.edits_seen(page, step.at.saturating_sub(LONGEST));
            if cost > 2 && !disturbed {
                let about = format!(
                    "step {number}: {count} asked at once, {cost} requests reached the origin"
                );
                self.faults.push(Fault {
                    kind: Kind::Stampede,
                    about,
                });
            }
        }
    }

    /// The responses of a storable page to honest clients that were not logged in, in order.
    fn visits(&self, page: &Page) -> Vec<&'a Answer> {
        let mut visits: Vec<_> = self
            .log
            .answers
            .iter()
            .filter(|answer| match &self.plan.steps[answer.step].act {
                Act::Honest(requested, _) => {
                    requested.target == page.path
                        && self.is_kept(page, requested)
                        && answer.got.is_some()
                }
                _ => false,
            })
            .collect();
        visits.sort_by_key(|answer| answer.began);
        visits
    }

    fn is_kept(&self, page: &Page, requested: &TestRequest) -> bool {
        let _ = self;
        let logged_in =
            joined(&requested.fields, "cookie").is_some_and(|c| c.contains(HONEST_SECRET));
        let version = Version {
            edits: 0,
            edition: 0,
        };
        !logged_in
            && page.size < LARGEST / 2
            && page.answer(&requested.plain(), version, 0).shareable
    }

    /// Returns true if a client made the origin fail on this page in that time, and waited for it.
    fn crashed(&self, page: &Page, from: u64, to: u64) -> bool {
        self.log.seen.iter().any(|seen| {
            seen.requested.target == page.path
                && joined(&seen.requested.fields, "x-crash").is_some()
                && (from.saturating_sub(LONGEST)..=to).contains(&seen.at)
        })
    }

    fn outage(&self, from: u64, to: u64) -> bool {
        self.plan.steps.iter().any(|step| match step.act {
            Act::Outage(length) => step.at <= to && step.at + length >= from,
            _ => false,
        })
    }

    fn page(&self, requested: &TestRequest) -> &'a Page {
        let page = self
            .plan
            .pages
            .iter()
            .find(|page| page.path == requested.target);
        page.expect("honest clients ask for pages")
    }

    fn requested(&self, answer: &Answer) -> Option<&'a TestRequest> {
        match &self.plan.steps[answer.step].act {
            Act::Honest(requested, _) | Act::Hostile(requested, _) => Some(requested),
            Act::Outage(_) => None,
        }
    }

    fn fault(&mut self, kind: Kind, answer: &Answer, got: &Got) {
        let body = String::from_utf8_lossy(&got.body[..got.body.len().min(200)]);
        let about = format!(
            "step {} at {} to {} ms got {} {:?} {:?}, {} bytes, whole: {}, {}",
            answer.step,
            answer.began,
            answer.ended,
            got.status,
            got.fields,
            body.trim_end_matches('.'),
            got.body.len(),
            got.is_whole,
            got.status_field
        );
        self.faults.push(Fault { kind, about });
    }
}
