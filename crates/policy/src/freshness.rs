//! Freshness lifetime and age (RFC 9111 §4.2).

use crate::anonymous;
use crate::date;
use crate::directives::{self, Directive, ResponseDirectives, delta_seconds};
use crate::fields::{Fields, split_list};
use crate::known_name::names;
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::rules::{IMPLICIT_STATUSES, Rules};
use crate::time::{Millis, Time, Times};

/// An apparent age below this counts as zero, in milliseconds: `Date` counts whole seconds and clocks drift, so half of
/// all responses with a lifetime of one second would arrive stale.
const DATE_RESOLUTION: Millis = 2_000;

/// Statuses that only a heuristic of a private cache may make fresh (RFC 9110 §15.1).
const PRIVATE_STATUSES: [u16; 3] = [405, 414, 501];

/// The freshness lifetime in milliseconds, by its kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Explicit from the origin, compared with the age of the response.
    Explicit(Millis),
    /// Heuristic freshness, likewise (§4.2.2).
    Heuristic(Millis),
    /// The operator's, counted from the receipt: it concerns this cache, not those upstream.
    Operator(Millis),
    /// None: the origin gives no lifetime, and the status allows no heuristic.
    Unknown,
}

/// The source of a freshness lifetime, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeSource {
    /// The route's `anonymous_ttl`, or its `status_ttl` in place of that.
    AnonymousTtl,
    /// The route's `forced_ttl`.
    ForcedTtl,
    /// `s-maxage` of the response.
    SMaxage,
    /// `max-age` of the response.
    MaxAge,
    /// `Expires` of the response.
    Expires,
    /// The route's `status_ttl` for the status.
    StatusTtl,
    /// The route's `heuristic`, from the time since `Last-Modified`.
    Heuristic,
    /// The route's `ttl`.
    Ttl,
}

/// A response with its time of receipt.
pub(crate) struct ReceivedResponse<'r, 'a> {
    pub(crate) facts: &'r ResponseFacts<'a>,
    pub(crate) status: u16,
    pub(crate) times: Times,
    /// `Date`, or the time of receipt if that is missing or invalid (RFC 9110 §6.6.1).
    date: Time,
    /// The explicit lifetime in milliseconds, with its source.
    explicit: Option<(Millis, LifetimeSource)>,
    /// The lifetime that overrides the origin's, in milliseconds.
    pub(crate) forced: Option<Millis>,
    /// The lifetime by [`Rules::anonymous_ttl`], in milliseconds, if the response is stored by nothing else.
    pub(crate) anonymous: Option<Millis>,
    /// The directives that count: none of one that is stored in spite of them.
    pub(crate) directives: ResponseDirectives,
}

impl<'r, 'a> ReceivedResponse<'r, 'a> {
    pub(crate) fn new(
        request: &RequestFacts,
        facts: &'r ResponseFacts<'a>,
        status: u16,
        times: Times,
    ) -> Self {
        let received = times.date;
        let date = facts
            .seen
            .date
            .and_then(|value| date::parse(value, received));
        let date = date.unwrap_or(received);
        let directives = &facts.said.directives;
        let by = |who| move |span| (span, who);
        let max_age = || directives.max_age.map(by(LifetimeSource::MaxAge));
        let stated = directives
            .s_maxage
            .map(by(LifetimeSource::SMaxage))
            .or_else(max_age);
        let expires = || {
            let span = expires(facts, date, received).filter(|_| !facts.is_targeted);
            span.map(by(LifetimeSource::Expires))
        };
        let mut arrived = Self {
            facts,
            status,
            times,
            date,
            explicit: stated.or_else(expires),
            forced: request.forced_ttl(facts.rules),
            anonymous: None,
            directives: *directives,
        };
        let is_stale = arrived.must_validate() || arrived.is_explicitly_stale();
        arrived.anonymous = anonymous::ttl(request, status, facts, is_stale);
        if arrived.anonymous.is_some() {
            arrived.directives = ResponseDirectives::default();
        }
        arrived
    }

    /// Returns true if the origin gives an explicit lifetime of zero.
    fn is_explicitly_stale(&self) -> bool {
        self.explicit.is_some_and(|(lifetime, _)| lifetime == 0)
    }

    /// Returns true if the response has an explicit lifetime.
    pub(crate) const fn is_explicit(&self) -> bool {
        self.explicit.is_some()
    }

    /// The freshness lifetime.
    pub(crate) fn freshness(&self) -> Freshness {
        self.decided().0
    }

    /// The freshness lifetime and its source: targeted field, `s-maxage`, `max-age`, `Expires`, then the route.
    pub(crate) fn decided(&self) -> (Freshness, Option<LifetimeSource>) {
        let rules = self.facts.rules;
        let by_status = rules
            .status_ttl
            .iter()
            .find(|(of, _)| *of == self.status)
            .map(|(_, ttl)| *ttl);
        let is_implicit = IMPLICIT_STATUSES.contains(&self.status);
        let is_guessed = rules.are_private() && PRIVATE_STATUSES.contains(&self.status);
        let storable = self.is_explicit() || by_status.is_some() || is_implicit || is_guessed;
        if let Some(ttl) = self.anonymous {
            return (Freshness::Operator(ttl), Some(LifetimeSource::AnonymousTtl));
        }
        match (self.forced, self.explicit, by_status) {
            _ if !storable => (Freshness::Unknown, None),
            (Some(forced), ..) => (Freshness::Operator(forced), Some(LifetimeSource::ForcedTtl)),
            (None, Some((lifetime, by)), _) => (Freshness::Explicit(lifetime), Some(by)),
            (None, None, Some(ttl)) => (Freshness::Operator(ttl), Some(LifetimeSource::StatusTtl)),
            (None, None, None) => match self.heuristic() {
                Some(lifetime) => (
                    Freshness::Heuristic(lifetime),
                    Some(LifetimeSource::Heuristic),
                ),
                None if is_guessed => (Freshness::Unknown, None),
                None => (Freshness::Operator(rules.ttl), Some(LifetimeSource::Ttl)),
            },
        }
    }

    /// Returns true if every reuse requires validation. Without explicit freshness, `Pragma: no-cache` requires it too.
    pub(crate) const fn must_validate(&self) -> bool {
        let pragma = self.facts.says_pragma_no_cache() && !self.is_explicit();
        self.facts.says(Directive::NoCache) || pragma
    }

    /// Returns true if every reuse requires validation, whatever the operator overrides.
    pub(crate) const fn must_be_validated(&self) -> bool {
        self.anonymous.is_none() && self.forced.is_none() && self.must_validate()
    }

    /// The lifetime that the operator gives it, in milliseconds: none if the cache that has sent it found it stale.
    /// `forced_ttl` and `anonymous_ttl` count in spite of that.
    pub(crate) fn operators(&self, ttl: Millis) -> Millis {
        let is_forced = self.forced.is_some() || self.anonymous.is_some();
        if !is_forced && self.is_sent_stale() {
            0
        } else {
            ttl
        }
    }

    /// Returns true for a hit without a time to live of the last cache in `Cache-Status` (RFC 9211 §2.4).
    fn is_sent_stale(&self) -> bool {
        let lines = self.facts.fields.values(names::CACHE_STATUS);
        let Some(member) = lines.flat_map(split_list).last() else {
            return false;
        };
        let mut parameters = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let is_spent = |ttl: &[u8]| ttl == b"0" || ttl.starts_with(b"-");
        parameters.clone().any(|one| one == b"hit")
            && parameters.any(|one| one.strip_prefix(b"ttl=").is_some_and(is_spent))
    }

    /// `corrected_initial_age` of §4.2.3, in milliseconds.
    pub(crate) fn initial_age(&self) -> Millis {
        let apparent = self.times.date.since(self.date);
        let apparent = if apparent < DATE_RESOLUTION {
            0
        } else {
            apparent
        };
        let delay = self.times.response.since(self.times.request);
        apparent.max(self.age_value().saturating_add(delay))
    }

    /// The first member of `Age`; an invalid one counts as zero (§5.1).
    fn age_value(&self) -> Millis {
        let seconds = self.facts.seen.age.and_then(delta_seconds);
        seconds.map_or(0, |seconds| seconds * 1000)
    }

    /// A percentage of the time since `Last-Modified`.
    fn heuristic(&self) -> Option<Millis> {
        let percent = self.facts.rules.heuristic?;
        let modified = date::parse(self.facts.seen.last_modified?, self.times.date)?;
        let unchanged_for = self.date.since(modified);
        (unchanged_for > 0).then(|| unchanged_for / 100 * u64::from(percent))
    }
}

/// The longest lifetime in the fields of a stored response, in milliseconds: that of a cache which heeds others than this
/// one does.
pub fn stated_lifetime(stored: Fields<'_>) -> Millis {
    let in_field = |name| {
        let mut said = ResponseDirectives::default();
        for (directive, argument) in stored.all(name).flat_map(directives::of_line) {
            said.note(directive, argument);
        }
        said.max_age.max(said.s_maxage)
    };
    let date = |name| date::parse(stored.value(name)?, Time::default());
    let expires = date(names::EXPIRES).zip(date(names::DATE));
    let by_expires = expires.map(|(expires, date)| expires.since(date));
    let stated = [
        in_field("cache-control"),
        in_field("cdn-cache-control"),
        by_expires,
    ];
    stated.into_iter().flatten().max().unwrap_or(0)
}

/// `Expires` minus `Date`. An invalid value, or two different ones, count as expired (§5.3, §4.2.1).
fn expires(facts: &ResponseFacts<'_>, date: Time, received: Time) -> Option<Millis> {
    let value = facts.seen.expires?;
    if facts.seen.expires_differ {
        return Some(0);
    }
    Some(date::parse(value, received).map_or(0, |expires| expires.since(date)))
}

/// The stale windows of a response, in milliseconds.
pub(crate) struct StaleWindows {
    pub(crate) while_revalidate: Millis,
    pub(crate) if_error: Millis,
    /// `while_revalidate` is the route's.
    pub(crate) operators: bool,
}

/// Returns true if the response must never be served stale: `must-revalidate`, `proxy-revalidate` and `s-maxage` forbid
/// it (§4.2.4, §5.2.2.10).
pub(crate) fn is_never_stale(directives: &ResponseDirectives) -> bool {
    directives.says(Directive::MustRevalidate)
        || directives.says(Directive::MustRevalidateAtLeast)
        || directives.says(Directive::ProxyRevalidate)
        || directives.s_maxage.is_some()
}

/// The stale windows: the response's own, else the route's; none if stale reuse is forbidden. With an explicit lifetime
/// of zero, the route's `stale_while_revalidate` does not apply.
pub(crate) fn windows(
    directives: &ResponseDirectives,
    freshness: Freshness,
    rules: &Rules,
) -> StaleWindows {
    if is_never_stale(directives) {
        return StaleWindows {
            while_revalidate: 0,
            if_error: 0,
            operators: false,
        };
    }
    let by_default = match freshness {
        Freshness::Explicit(0) => 0,
        _ => rules.stale_while_revalidate,
    };
    StaleWindows {
        while_revalidate: directives.stale_while_revalidate.unwrap_or(by_default),
        if_error: directives.stale_if_error.unwrap_or(rules.stale_if_error),
        operators: directives.stale_while_revalidate.is_none() && by_default > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldsBuf;
    use crate::testing::{RECEIVED, fields, get, judge, lifetime};

    /// The remaining freshness of a plain 200 in seconds, negative when stale on arrival.
    fn check(response: &str, expected: i64) {
        // With a validator, even responses that are stale on arrival are stored.
        let response = format!("{response}\nETag: \"a\"");
        assert_eq!(
            lifetime(&response).ttl(RECEIVED),
            expected * 1000,
            "{response}"
        );
    }

    #[test]
    fn the_most_specific_word_counts() {
        check("Expires: Sun, 06 Nov 1994 08:50:37 GMT", 60);
        check(
            "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nCache-Control: max-age=5",
            5,
        );
        check("Cache-Control: max-age=5, s-maxage=7", 7);
        check("Cache-Control: s-maxage=7\nCDN-Cache-Control: max-age=9", 9);
        check("CDN-Cache-Control: max-age=9, s-maxage=11", 11);
        check(
            "CDN-Cache-Control: max-age=9\nCache-Control: no-store\nExpires: 0",
            9,
        );
        check(
            "CDN-Cache-Control: foo\nCache-Control: max-age=60\nExpires: 0",
            1,
        );
        check(
            "CDN-Cache-Control: max-age=9, &\nCache-Control: max-age=5",
            5,
        );
        check("", 1);
    }

    #[test]
    fn an_invalid_word_is_stale_and_not_passed_over() {
        check("Expires: 0", 0);
        check("Expires: -1", 0);
        check("Expires:", 0);
        check("Expires: Sun, 06 Nov 1994 08:50:37 UTC", 0);
        check(
            "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nExpires: Sun, 06 Nov 1994 08:51:37 GMT",
            0,
        );
        check(
            "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nExpires: Sun, 06 Nov 1994 08:50:37 GMT",
            60,
        );
        check(
            "Cache-Control: max-age=x\nExpires: Sun, 06 Nov 1994 08:50:37 GMT",
            0,
        );
        check("Cache-Control: s-maxage=-1, max-age=5", 0);
        check("Cache-Control: max-age=5, max-age=6", 0);
    }

    #[test]
    fn expires_counts_from_the_date_of_the_response() {
        check(
            "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nDate: Sun, 06 Nov 1994 08:49:27 GMT",
            60,
        );
        check(
            "Expires: Sunday, 06-Nov-94 08:50:37 GMT\nDate: Sun Nov  6 08:49:37 1994",
            60,
        );
        check(
            "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nDate: yesterday",
            60,
        );
        check(
            "Expires: Sun, 06 Nov 1994 08:49:00 GMT\nDate: Sun, 06 Nov 1994 08:49:37 GMT",
            0,
        );
    }

    #[test]
    fn age_is_taken_off() {
        check("Cache-Control: max-age=60\nAge: 20", 40);
        check("Cache-Control: max-age=60\nAge: 20, 0", 40);
        check("Cache-Control: max-age=60\nAge: 0, 20", 60);
        check("Cache-Control: max-age=60\nAge: 20\nAge: 30", 40);
        check("Cache-Control: max-age=60\nAge: 7200", -7140);
        check("Cache-Control: max-age=60\nAge: -7200", 60);
        check("Cache-Control: max-age=60\nAge: abc", 60);
        check("Cache-Control: max-age=60\nAge: 20.5", 60);
        check(
            "Cache-Control: max-age=60\nAge: 99999999999999999999",
            60 - (1 << 31),
        );
        check(
            "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:27 GMT",
            50,
        );
        check(
            "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:27 GMT\nAge: 5",
            50,
        );
        check(
            "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:27 GMT\nAge: 15",
            45,
        );
    }

    #[test]
    fn a_date_in_the_future_or_just_past_is_ignored() {
        check(
            "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 09:00:00 GMT",
            60,
        );
        check(
            "Cache-Control: max-age=1\nDate: Sun, 06 Nov 1994 08:49:36 GMT",
            1,
        );
        check(
            "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:35 GMT",
            58,
        );
    }

    #[test]
    fn the_time_the_origin_took_counts_as_age() {
        let (response, rules) = (fields("Age: 3"), Rules::default());
        let facts = ResponseFacts::read(response.fields(), &rules);
        let request = get(&FieldsBuf::new(), &rules);
        let times = Times {
            response: RECEIVED.plus(1_500),
            ..Times::at(RECEIVED)
        };
        let arrived = ReceivedResponse::new(&request, &facts, 200, times);
        assert_eq!(arrived.initial_age(), 4_500);
    }

    #[test]
    fn dates_are_compared_with_the_wall_clock_and_ages_are_not() {
        const HOUR: Millis = 3_600_000;
        let rules = Rules::default();
        let request = get(&FieldsBuf::new(), &rules);
        // The system clock was two hours ahead or behind when the process began, and has been set right since.
        for began in [RECEIVED.plus(2 * HOUR), RECEIVED.before(2 * HOUR)] {
            let times = Times {
                date: RECEIVED,
                ..Times::at(began)
            };
            for (response, age, fresh_for) in [
                (
                    "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:37 GMT",
                    0,
                    60_000,
                ),
                (
                    "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 08:49:07 GMT",
                    30_000,
                    60_000,
                ),
                ("Expires: Sun, 06 Nov 1994 08:50:37 GMT", 0, 60_000),
                ("Cache-Control: max-age=60", 0, 60_000),
            ] {
                let response = fields(response);
                let facts = ResponseFacts::read(response.fields(), &rules);
                let arrived = ReceivedResponse::new(&request, &facts, 200, times);
                assert_eq!(arrived.initial_age(), age, "{response:?}");
                assert_eq!(arrived.freshness(), Freshness::Explicit(fresh_for));
            }
        }
    }

    #[test]
    fn a_response_that_a_cache_found_stale_gets_no_time_from_the_operator() {
        for (status, expected) in [
            ("", 60),
            ("a; hit; ttl=5", 60),
            ("a; hit; ttl=0", 0),
            ("a; hit; ttl=-5", 0),
            ("A;ttl=-5 ;hit;detail=x", 0),
            // It was fetched, and may be fresh.
            ("a; fwd=stale; ttl=-5", 60),
            ("a; hit", 60),
            // The cache next to the origin is the first.
            ("a; hit; ttl=-5, b; hit; ttl=5", 60),
            ("a; hit; ttl=5, b; hit; ttl=-5", 0),
            ("a; hit; ttl=5\nCache-Status: \"b, c\"; hit; ttl=-1", 0),
        ] {
            let response = format!("Cache-Status: {status}");
            for (lifetime, forced, left) in [
                ("", None, expected),
                ("Cache-Control: max-age=70\n", None, 70),
                ("", Some(9_000), 9),
            ] {
                let rules = Rules {
                    ttl: 60_000,
                    forced_ttl: forced,
                    ..Rules::default()
                };
                let stored = judge(&rules, "", 200, &format!("{lifetime}{response}"));
                let stored = stored.expect("there is a stale window");
                assert_eq!(stored.ttl(RECEIVED), left * 1000, "{response}");
            }
        }
    }

    #[test]
    fn the_longest_stated_lifetime_is_that_of_any_cache() {
        for (stored, seconds) in [
            ("", 0),
            ("Cache-Control: no-cache", 0),
            ("Cache-Control: max-age=60", 60),
            (
                "Cache-Control: max-age=60, s-maxage=5\nCache-Control: public",
                60,
            ),
            ("Cache-Control: s-maxage=600, max-age=5", 600),
            (
                "CDN-Cache-Control: max-age=90\nCache-Control: max-age=5",
                90,
            ),
            (
                "Expires: Sun, 06 Nov 1994 08:50:37 GMT\nDate: Sun, 06 Nov 1994 08:49:37 GMT",
                60,
            ),
            ("Expires: 0\nDate: Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ] {
            assert_eq!(
                stated_lifetime(fields(stored).fields()),
                seconds * 1000,
                "{stored}"
            );
        }
    }

    #[test]
    fn the_operators_ttl_counts_from_the_receipt() {
        check("Age: 100", 1);
        check("Date: Sun, 06 Nov 1994 07:00:00 GMT", 1);
        assert_eq!(lifetime("Age: 100").age(RECEIVED), 100_000);
    }

    #[test]
    fn the_operator_can_set_ttls_by_status_or_by_force() {
        let rules = Rules {
            status_ttl: vec![(404, 300), (500, 200)],
            ..Rules::default()
        };
        for (status, response, expected) in [
            (200, "", Some(1_000)),
            (404, "", Some(300)),
            (500, "", Some(200)),
            (500, "Cache-Control: max-age=2", Some(2_000)),
            (502, "", None),
        ] {
            let ttl = judge(&rules, "", status, response)
                .ok()
                .map(|lifetime| lifetime.ttl(RECEIVED));
            assert_eq!(ttl, expected, "{status} {response}");
        }
        let rules = Rules {
            forced_ttl: Some(7_000),
            ..rules
        };
        for (status, response, expected) in [
            (200, "", Some(7_000)),
            (200, "Cache-Control: max-age=1", Some(7_000)),
            (200, "Cache-Control: no-cache", Some(7_000)),
            (200, "Expires: 0\nPragma: no-cache", Some(7_000)),
            (200, "Cache-Control: s-maxage=0\nAge: 30", Some(7_000)),
            (200, "Cache-Control: private, max-age=1", None),
            (200, "Cache-Control: no-store", None),
            (200, "Set-Cookie: a=b", None),
            (200, "Vary: *", None),
            (500, "", Some(7_000)),
            (502, "", None),
            (502, "Cache-Control: max-age=1", Some(7_000)),
        ] {
            let ttl = judge(&rules, "", status, response)
                .ok()
                .map(|lifetime| lifetime.ttl(RECEIVED));
            assert_eq!(ttl, expected, "{status} {response}");
        }
        assert!(judge(&rules, "Cookie: a=b", 200, "").is_err());
    }

    #[test]
    fn the_heuristic_is_off_by_default() {
        let ten_days_old =
            "Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT\nDate: Sun, 06 Nov 1994 08:49:37 GMT";
        check(ten_days_old, 1);
        let rules = Rules {
            heuristic: Some(10),
            ..Rules::default()
        };
        for (status, response, expected) in [
            (200, ten_days_old, 86_400_000),
            (404, ten_days_old, 86_400_000),
            (200, "", 1_000),
            (200, "Last-Modified: x", 1_000),
            (200, "Last-Modified: Mon, 07 Nov 1994 08:49:37 GMT", 1_000),
            (
                200,
                "Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT\nCache-Control: max-age=5",
                5_000,
            ),
        ] {
            let lifetime = judge(&rules, "", status, response).expect(response);
            assert_eq!(lifetime.ttl(RECEIVED), expected, "{status} {response}");
        }
        assert!(judge(&rules, "", 500, ten_days_old).is_err());
        for status in PRIVATE_STATUSES {
            assert!(judge(&rules, "", status, ten_days_old).is_err(), "{status}");
            let own = judge(&Rules::private(), "", status, ten_days_old);
            assert_eq!(own.expect("stored").ttl(RECEIVED), 86_400_000, "{status}");
            let undated = Rules {
                ttl: 5_000,
                ..Rules::private()
            };
            assert!(judge(&undated, "", status, "").is_err(), "{status}");
        }
    }

    #[test]
    fn stale_windows_are_the_responses_own_or_the_routes() {
        const DAY: Millis = 86_400_000;
        for (response, while_revalidate, if_error) in [
            ("", 10_000, DAY),
            ("Cache-Control: max-age=5", 10_000, DAY),
            (
                "Cache-Control: max-age=5, stale-while-revalidate=3",
                3_000,
                DAY,
            ),
            ("Cache-Control: max-age=5, stale-if-error=3", 10_000, 3_000),
            (
                "Cache-Control: max-age=5, stale-while-revalidate=0, stale-if-error=0",
                0,
                0,
            ),
            ("Cache-Control: max-age=5, stale-while-revalidate=x", 0, DAY),
            ("Cache-Control: stale-while-revalidate=3", 3_000, DAY),
            ("Cache-Control: max-age=0", 0, DAY),
            ("Expires: 0", 0, DAY),
            (
                "Cache-Control: max-age=0, stale-while-revalidate=3",
                3_000,
                DAY,
            ),
            ("Cache-Control: max-age=5, must-revalidate", 0, 0),
            ("Cache-Control: max-age=5, proxy-revalidate", 0, 0),
            ("Cache-Control: s-maxage=5", 0, 0),
            (
                "Cache-Control: s-maxage=5, stale-while-revalidate=3, stale-if-error=3",
                0,
                0,
            ),
            (
                "Cache-Control: must-revalidate\nCDN-Cache-Control: max-age=5",
                10_000,
                DAY,
            ),
            (
                "CDN-Cache-Control: max-age=5, stale-while-revalidate=3",
                3_000,
                DAY,
            ),
        ] {
            let stored = lifetime(&format!("{response}\nETag: \"a\""));
            let windows = (stored.stale_while_revalidate, stored.stale_if_error);
            assert_eq!(windows, (while_revalidate, if_error), "{response}");
        }
    }
}
