//! Pages for requests without credentials that their application marks as one client's.
//!
//! Rails, Laravel, Django and others mark every page as `private` or `no-cache`, and set a cookie with it, because it
//! could be one client's. [`Rules::anonymous_ttl`](crate::rules::Rules::anonymous_ttl) is the operator's word that a
//! request without credentials gets the page that all such requests get. That is believed only if
//!
//! - the request has no credentials, and no query but parameters that the key lists;
//! - the response has no `no-store`, no targeted field, no coding, and a status that is stored without explicit
//!   freshness;
//! - it has no token for one visitor, in its fields or its body: see [`form_tokens`](crate::form_tokens).
//!
//! Such a response is stored without its cookies, which the client gets whose request was sent. It never serves a
//! request with credentials.

use crate::directives::Directive;
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::rules::{IMPLICIT_STATUSES, SetCookie};
use crate::time::Millis;

/// The lifetime of a response that is stored by `anonymous_ttl` and by nothing else: that of `status_ttl` for its
/// status, or the option's own. `is_stale`: it is marked as stale.
pub(crate) fn ttl(
    request: &RequestFacts,
    status: u16,
    response: &ResponseFacts<'_>,
    is_stale: bool,
) -> Option<Millis> {
    let rules = response.rules;
    let ttl = rules.anonymous_ttl?;
    let mut by_status = rules.status_ttl.iter().filter(|(of, _)| *of == status);
    let ttl = match by_status.next() {
        Some(&(_, ttl)) => ttl,
        None => IMPLICIT_STATUSES.contains(&status).then_some(ttl)?,
    };
    let sets_cookie = response.seen.has_set_cookie && rules.set_cookie == SetCookie::Refuse;
    let is_marked = response.says(Directive::Private) || is_stale || sets_cookie;
    let is_covered = ttl > 0
        && request.is_anonymous()
        && rules.set_cookie != SetCookie::Store
        && !response.is_targeted
        && !response.says(Directive::NoStore)
        && !response.fields.contains("content-encoding");
    (is_marked && is_covered).then_some(ttl)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::explain::{LifetimeSource, ResponseExplanation};
    use crate::lifetime::Lifetime;
    use crate::patterns::Patterns;
    use crate::request::Credentials;
    use crate::rules::{KeyRules, Query, Rules};
    use crate::storable::{NotStorable, Storable, storable};
    use crate::testing::{RECEIVED, fields, get, to_store};
    use crate::time::Times;

    /// The fields of stock applications.
    const STOCK: [&str; 5] = [
        "Cache-Control: no-cache, private\nSet-Cookie: XSRF-TOKEN=a\nSet-Cookie: laravel_session=b",
        "Cache-Control: max-age=0, private, must-revalidate\nETag: W/\"a\"\nSet-Cookie: _app_session=a",
        "Vary: Cookie\nSet-Cookie: sessionid=a",
        "Cache-Control: no-cache, must-revalidate, max-age=0\nExpires: Wed, 11 Jan 1984 05:00:00 GMT",
        "Pragma: no-cache\nSet-Cookie: PHPSESSID=a",
    ];

    fn rules() -> Rules {
        Rules {
            anonymous_ttl: Some(5_000),
            ..Rules::default()
        }
    }

    fn judge_at(
        rules: &Rules,
        target: &str,
        request: &str,
        status: u16,
        response: &str,
    ) -> Result<Lifetime, NotStorable> {
        let (request, response) = (fields(request), fields(response));
        let facts = get(&request, rules).of_target(target.as_bytes(), rules);
        let read = ResponseFacts::read(response.fields(), rules);
        match storable(&facts, status, &read, Times::at(RECEIVED)) {
            Storable::Yes(lifetime) => Ok(lifetime),
            Storable::No(why) => Err(why),
        }
    }

    fn is_anonymous(
        rules: &Rules,
        target: &str,
        request: &str,
        status: u16,
        response: &str,
    ) -> bool {
        judge_at(rules, target, request, status, response).is_ok_and(|one| one.is_anonymous())
    }

    #[test]
    fn pages_of_stock_applications_are_stored_without_their_cookies() {
        for response in STOCK {
            let lifetime = judge_at(&rules(), "/", "Cookie: _ga=1", 200, response).expect(response);
            assert!(lifetime.is_anonymous() && !lifetime.must_be_validated());
            assert_eq!(lifetime.ttl(RECEIVED), 5_000, "{response}");
            assert_eq!(lifetime.stale_while_revalidate(), 10_000, "{response}");
            for (authorization, cookie) in [(true, false), (false, true)] {
                let credentials = Credentials {
                    authorization,
                    cookie,
                };
                assert!(!lifetime.is_shareable(credentials), "{response}");
            }
            let stored = to_store(&fields(response), &rules());
            assert!(!stored.fields().contains("set-cookie"), "{response}");
            assert!(
                judge_at(&Rules::default(), "/", "", 200, response).is_err()
                    || response.contains("ETag")
            );
        }
    }

    #[test]
    fn it_is_believed_about_plain_requests_only() {
        for (target, request, expected) in [
            ("/", "", true),
            ("/a?", "Accept-Language: de", true),
            ("/?q=a", "", false),
            ("/", "Cookie: unknown=1", false),
            ("/", "Cookie: _ga=1; unknown=1", false),
            ("/", "Authorization: Basic a", false),
            ("/", "X-Api-Key: a", false),
            ("/", "HX-Request: true", false),
            ("/", "Cache-Control: no-store", false),
        ] {
            let is_stored = is_anonymous(&rules(), target, request, 200, STOCK[0]);
            assert_eq!(is_stored, expected, "{target} {request}");
        }
        let facts = get(&fields(""), &rules()).of_target(b"/", &rules());
        assert!(facts.is_anonymous() && !facts.signed_in().is_anonymous());
        let request = |method, has_body| {
            RequestFacts::read(method, fields("").fields(), has_body, &rules())
                .of_target(b"/", &rules())
        };
        assert!(!request(&Method::HEAD, false).is_anonymous());
        assert!(request(&Method::HEAD, false).as_fill().is_anonymous());
        assert!(!request(&Method::POST, false).is_anonymous());
        assert!(!request(&Method::GET, true).is_anonymous());
    }

    #[test]
    fn parameters_count_as_plain_once_the_key_lists_them() {
        let with = |query, whole_query| Rules {
            key: KeyRules {
                query,
                whole_query,
                ..KeyRules::default()
            },
            ..rules()
        };
        let only = || Query::Only(Patterns::from_iter(["page"]));
        let except = || Query::Except(Patterns::from_iter(["utm_*"]));
        for (rules, target, expected) in [
            (with(only(), false), "/?page=2&token=x", true),
            (with(only(), true), "/?page=2&token=x", false),
            (with(except(), false), "/?utm_source=a", true),
            (with(except(), false), "/?utm_source=a&q=b", false),
            (with(except(), true), "/?utm_source=a", false),
        ] {
            let is_stored = is_anonymous(&rules, target, "", 200, STOCK[1]);
            assert_eq!(is_stored, expected, "{target} {:?}", rules.key);
        }
    }

    #[test]
    fn some_responses_are_never_stored_by_it() {
        for (status, response, expected) in [
            (404, "Cache-Control: no-cache", true),
            (301, "Cache-Control: private", true),
            (302, "Cache-Control: private", false),
            (302, "Cache-Control: private, max-age=0", false),
            (403, "Cache-Control: private", false),
            (500, "Cache-Control: private", false),
            (206, "Cache-Control: private", false),
            (200, "Cache-Control: private, no-store", false),
            (
                200,
                "Cache-Control: private, no-store, must-understand",
                false,
            ),
            (200, "Cache-Control: private\nVary: *", false),
            (
                200,
                "Cache-Control: private\nVary: Cookie, Accept-Language",
                true,
            ),
            (
                200,
                "Cache-Control: private\nContent-Type: text/event-stream",
                false,
            ),
            (200, "Cache-Control: private\nContent-Encoding: gzip", false),
            (
                200,
                "Cache-Control: private\nCDN-Cache-Control: private",
                false,
            ),
            (200, "Set-Cookie: a=b\nCDN-Cache-Control: max-age=5", false),
            (200, "Cache-Control: private\nX-CSRF-Token: a", false),
            (200, "Cache-Control: max-age=60", false),
            (200, "", false),
        ] {
            let is_stored = is_anonymous(&rules(), "/", "", status, response);
            assert_eq!(is_stored, expected, "{status} {response}");
        }
        let policy = "Cache-Control: private\nContent-Security-Policy: script-src 'nonce-a'";
        let verdict = judge_at(&rules(), "/", "", 200, policy);
        assert_eq!(verdict, Err(NotStorable::FormToken));
        for set_cookie in [SetCookie::Strip, SetCookie::Store] {
            let rules = Rules {
                set_cookie,
                ..rules()
            };
            let is_stored = is_anonymous(&rules, "/", "", 200, "Set-Cookie: a=b");
            assert!(!is_stored, "{set_cookie:?}");
        }
        let mut keyed = rules();
        keyed.key.cookies.push("currency".to_owned());
        assert!(!is_anonymous(
            &keyed,
            "/",
            "",
            200,
            "Set-Cookie: currency=eur"
        ));
    }

    #[test]
    fn statuses_are_chosen_by_status_ttl() {
        let by_status = Rules {
            status_ttl: vec![(200, 0), (404, 9_000), (302, 1_000)],
            ..rules()
        };
        let only_404 = Rules {
            anonymous_ttl: Some(0),
            status_ttl: vec![(404, 9_000)],
            ..Rules::default()
        };
        for (rules, status, expected) in [
            (&by_status, 200, None),
            (&by_status, 404, Some(9_000)),
            (&by_status, 302, Some(1_000)),
            (&by_status, 410, Some(5_000)),
            (&by_status, 500, None),
            (&only_404, 200, None),
            (&only_404, 404, Some(9_000)),
        ] {
            let verdict = judge_at(rules, "/", "", status, "Cache-Control: no-cache");
            let ttl = verdict.ok().map(|lifetime| lifetime.ttl(RECEIVED));
            assert_eq!(ttl, expected, "{status}");
        }
    }

    #[test]
    fn its_lifetime_has_a_source() {
        let rules = rules();
        let response = fields(STOCK[1]);
        let facts = get(&fields(""), &rules).of_target(b"/", &rules);
        let read = ResponseFacts::read(response.fields(), &rules);
        let account = ResponseExplanation::of(&facts, 200, &read, Times::at(RECEIVED));
        assert_eq!(account.source, Some(LifetimeSource::AnonymousTtl));
        assert!(!account.must_validate);
    }
}
