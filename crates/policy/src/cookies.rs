//! The cookies of a request: those that the origin sees, and those that make the request personal.
//!
//! Parsers of `Cookie` differ. Some also split at commas and white space, some honour quotes, some stop at the first
//! unexpected byte. So a field that is not plain (RFC 6265 §4.1.1) is parsed in every way at once: a cookie counts if
//! any of these readings contains it. Several lines, which no browser sends and every parser joins differently, become
//! one.

use smallvec::SmallVec;

use crate::fields::{Fields, FieldsBuf};
use crate::impersonal::{is_impersonal, is_impersonal_token};
use crate::known_name::names;
use crate::patterns::takes;
use crate::query::decoded;
use crate::rules::{RequestRules, Rules};
use crate::syntax::{find, is_cookie_octet, is_plain_cookie_value, is_token};

/// Maximum number of cookies of a plain field. It is above the limit of every browser per site; some parsers ignore the
/// rest beyond a limit of their own.
const MAX_PLAIN: usize = 180;

/// Returns true if parsers could disagree on the cookies that are part of the key.
pub(crate) fn are_unclear(fields: Fields<'_>, rules: &Rules) -> bool {
    CookieFacts::of(fields, rules).is_unclear()
}

/// The cookies that select a response where it varies on `Cookie`, as `name=value` in the order of the request. Ignored
/// cookies and those hidden from the origin are left out; of a field that parsers could read differently, nothing is
/// left out.
pub fn counting<'a>(fields: Fields<'a>, rules: &'a Rules) -> impl Iterator<Item = &'a [u8]> {
    let judged = CookieFacts::of(fields, rules);
    let all = judged.is_unclear() || !judged.plain && judged.counts;
    sent(fields, &rules.request).filter(move |pair| all || !is_harmless(split(pair).0, rules))
}

/// The names of the cookies that make a request personal. `None` is a cookie without a name, or with a name that
/// parsers read differently: it could be a value.
pub fn personal<'a>(fields: Fields<'a>, rules: &'a Rules) -> Vec<Option<&'a [u8]>> {
    let judged = CookieFacts::of(fields, rules);
    if !judged.are_personal() {
        return Vec::new();
    }
    let names = sent(fields, &rules.request).filter_map(|pair| {
        let mut one = CookieFacts::default();
        one.note_pair(pair, rules);
        let counts = one.counts || judged.is_unclear();
        counts.then(|| Some(split(pair).0).filter(|name| is_token(name)))
    });
    let mut names: Vec<_> = names.collect();
    names.dedup();
    names
}

/// The cookies that these patterns match, as `name=value`. `None` if programs could find others of these names in the
/// field.
pub fn named<'a>(
    fields: Fields<'a>,
    rules: &'a RequestRules,
    wanted: &[String],
) -> Option<Vec<&'a [u8]>> {
    let is_wanted = |matches: fn(&[u8], &[u8]) -> bool, pair: &[u8]| {
        let mut wanted = wanted.iter();
        wanted.any(|one| matches(one.as_bytes(), split(pair).0))
    };
    let found: Vec<_> = sent(fields, rules)
        .filter(|pair| is_wanted(takes, pair))
        .collect();
    let all = lines(fields, rules).flat_map(in_any_reading);
    let alike = all.filter(|pair| is_wanted(could_be_taken_by, pair));
    // To some programs, a quoted value goes on behind a semicolon.
    let goes_on = |pair: &[u8]| {
        let value = split(pair).1.trim_ascii();
        value.starts_with(b"\"") && (value.len() < 2 || !value.ends_with(b"\""))
    };
    let is_plain = sent(fields, rules).count() <= MAX_PLAIN && !sent(fields, rules).any(goes_on);
    // Each cookie is read twice.
    (is_plain && alike.count() == 2 * found.len()).then_some(found)
}

/// The `Cookie` line for the origin if it differs from the client's: without the cookies that the route removes, and
/// with several lines joined.
pub fn rewritten(fields: Fields<'_>, rules: &RequestRules) -> Rewritten {
    let several = fields.values(names::COOKIE).nth(1).is_some();
    if !several && rules.removed_cookies.is_empty() {
        return Rewritten::Unchanged;
    }
    let left: Vec<_> = sent(fields, rules).collect();
    if left.is_empty() {
        Rewritten::Nothing
    } else {
        Rewritten::Line(left.join(&b"; "[..]))
    }
}

/// The `Cookie` line of a shared fetch: the cookies of the key alone.
pub fn keyed(fields: Fields<'_>, rules: &Rules) -> Option<Vec<u8>> {
    if rules.key.cookies.is_empty() {
        return None;
    }
    let is_keyed = |name: &[u8]| {
        let mut wanted = rules.key.cookies.iter();
        wanted.any(|one| takes(one.as_bytes(), name))
    };
    let pairs = sent(fields, &rules.request).filter(|pair| is_keyed(split(pair).0));
    let pairs: Vec<_> = pairs.collect();
    (!pairs.is_empty()).then(|| pairs.join(&b"; "[..]))
}

/// Removes cookies from the response to a shared fetch that its client has already, but the origin did not see: they
/// belong to the session of a stranger, and would replace the client's own.
pub fn remove_replacements(response: &mut FieldsBuf, client: Fields<'_>, rules: &Rules) {
    if rules.obeys_client || response.fields().value(names::SET_COOKIE).is_none() {
        return;
    }
    let is_unseen = |name: &[u8]| {
        let mut pairs = client.values(names::COOKIE).flat_map(pairs);
        let mut keyed = rules.key.cookies.iter();
        pairs.any(|pair| split(pair).0.trim_ascii() == name)
            && !keyed.any(|one| takes(one.as_bytes(), name))
    };
    response.retain(|field, value| {
        !(field.eq_ignore_ascii_case(b"set-cookie") && is_unseen(set_name(value)))
    });
}

/// Returns the name of the cookie that a `Set-Cookie` line sets.
pub(crate) fn set_name(line: &[u8]) -> &[u8] {
    let pair = line.split(|&byte| byte == b';').next().unwrap_or_default();
    split(pair).0.trim_ascii()
}

/// The `Cookie` field that the origin gets in place of the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// The client's lines, unchanged.
    Unchanged,
    /// This line.
    Line(Vec<u8>),
    /// No line.
    Nothing,
}

/// Splits a cookie into name and value. Without `=` it has a value and an empty name, as in browsers.
pub fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    match find(b'=', pair) {
        Some(equals) => (&pair[..equals], &pair[equals + 1..]),
        None => (&[], pair),
    }
}

/// The cookies of a request that the origin sees, parsed plainly.
pub(crate) fn sent<'a>(
    fields: Fields<'a>,
    rules: &'a RequestRules,
) -> impl Iterator<Item = &'a [u8]> {
    lines(fields, rules).flat_map(|line| sent_of(line, rules))
}

fn sent_of<'a>(line: &'a [u8], rules: &RequestRules) -> impl Iterator<Item = &'a [u8]> {
    pairs(line).filter(|pair| !is_removed(pair, rules))
}

/// Every piece of a `Cookie` line that some parser could take for a cookie.
pub fn in_any_reading(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    pairs(line).chain(
        line.split(|&b| !is_cookie_octet(b))
            .filter(|piece| !piece.is_empty()),
    )
}

/// The classification of the cookies of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CookieFacts {
    /// All parsers read them alike.
    plain: bool,
    /// One of them is neither ignored nor part of the key.
    counts: bool,
    /// One of them is part of the key.
    keyed: bool,
    /// The number of cookies.
    number: usize,
}

impl Default for CookieFacts {
    fn default() -> Self {
        Self {
            plain: true,
            counts: false,
            keyed: false,
            number: 0,
        }
    }
}

impl CookieFacts {
    fn of(fields: Fields<'_>, rules: &Rules) -> Self {
        let mut judged = Self::default();
        for line in lines(fields, &rules.request) {
            judged.take_line(line, rules);
        }
        judged
    }

    /// Adds the next `Cookie` line of a request. It must be one that the origin sees.
    pub(crate) fn take_line(&mut self, line: &[u8], rules: &Rules) {
        for pair in sent_of(line, &rules.request) {
            self.note_pair(pair, rules);
        }
    }

    fn note_pair(&mut self, pair: &[u8], rules: &Rules) {
        self.plain &= self.number < MAX_PLAIN;
        self.number += 1;
        let (name, value) = split(pair);
        let is_plain = is_plain_cookie_value(value);
        if is_plain && rules.key.cookies.is_empty() && is_impersonal_token(name) {
            // As most cookies of most requests: it changes nothing.
            return;
        }
        if is_plain && is_token(name) {
            self.note(name, rules);
        } else {
            self.plain = false;
            let pieces = pair.split(|&b| !is_cookie_octet(b));
            for piece in pieces.filter(|piece| !piece.is_empty()) {
                self.note(split(piece).0, rules);
            }
            // Some parsers treat all of it as a name.
            self.note(name, rules);
        }
    }

    /// Returns true if one of them is neither ignored nor part of the key.
    pub(crate) const fn are_personal(&self) -> bool {
        self.counts || self.is_unclear()
    }

    fn note(&mut self, name: &[u8], rules: &Rules) {
        let keyed = || rules.key.cookies.iter().map(String::as_bytes);
        if keyed().any(|one| takes(one, name)) {
            self.keyed = true;
        } else {
            self.counts |= !is_harmless(name, rules);
            if keyed().any(|one| could_be_taken_by(one, name)) {
                self.keyed = true;
                self.plain = false;
            }
        }
    }

    const fn is_unclear(&self) -> bool {
        self.keyed && !self.plain
    }
}

/// Returns true if some parser reads `name` as one that `pattern` matches: it decodes names, ignores case and
/// surrounding white space, or follows PHP, which replaces characters that are not allowed in variables by
/// underscores, makes arrays of brackets, and stops at NUL.
pub fn could_be_taken_by(pattern: &[u8], name: &[u8]) -> bool {
    let decoded: SmallVec<[u8; 64]> = decoded(name).take_while(|&byte| byte != 0).collect();
    let all = decoded.trim_ascii();
    let list = all.split(|&byte| byte == b'[').next().unwrap_or(all);
    [all, list]
        .into_iter()
        .any(|name| match pattern.strip_suffix(b"*") {
            Some(beginning) => name
                .get(..beginning.len())
                .is_some_and(|start| folded(start).eq(folded(beginning))),
            None => folded(name).eq(folded(pattern)),
        })
}

fn folded(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|byte| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    })
}

fn is_harmless(name: &[u8], rules: &Rules) -> bool {
    is_impersonal(name) || rules.cookies_ignored.matches(name)
}

#[inline]
fn is_removed(pair: &[u8], rules: &RequestRules) -> bool {
    !rules.removed_cookies.is_empty() && rules.removed_cookies.matches(split(pair).0.trim_ascii())
}

fn lines<'a>(fields: Fields<'a>, rules: &RequestRules) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let removed = rules.removed_fields.matches(b"cookie");
    fields.values(names::COOKIE).filter(move |_| !removed)
}

fn pairs(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            match rest {
                [] => return None,
                [b' ' | b';', after @ ..] => rest = after,
                _ => break,
            }
        }
        let end = find(b';', rest).unwrap_or(rest.len());
        rest.split_off(..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Patterns;
    use crate::rules::KeyRules;
    use crate::testing::fields;

    #[test]
    fn named_cookies_are_those_of_every_reading() {
        let wanted = ["PHPSESSID".to_owned(), "sess_*".to_owned()];
        let many = format!("Cookie: {}PHPSESSID=1", "a=b; ".repeat(MAX_PLAIN));
        for (request, expected) in [
            ("Cookie: PHPSESSID=1; a=2", Some("PHPSESSID=1")),
            ("Cookie: a=2\nCookie: PHPSESSID=1", Some("PHPSESSID=1")),
            (
                "Cookie: sess_a=1; PHPSESSID=2; PHPSESSID=3",
                Some("sess_a=1,PHPSESSID=2,PHPSESSID=3"),
            ),
            (
                "Cookie: consent=a:yes,b:no; PHPSESSID=1",
                Some("PHPSESSID=1"),
            ),
            ("Cookie: a={\"b\":1}", Some("")),
            ("", Some("")),
            ("Cookie: a=\"b; PHPSESSID=1\"; PHPSESSID=2", None),
            ("Cookie: a=1,PHPSESSID=2", None),
            ("Cookie: a=1 PHPSESSID=2; PHPSESSID=3", None),
            ("Cookie: PHPSESSI%44=1", None),
            ("Cookie: phpsessid=1; PHPSESSID=2", None),
            ("Cookie: PHPSESSID[a]=1", None),
            (&many, None),
        ] {
            let (request, rules) = (fields(request), RequestRules::default());
            let found = named(request.fields(), &rules, &wanted);
            let found = found.map(|all| String::from_utf8_lossy(&all.join(&b","[..])).into_owned());
            assert_eq!(found.as_deref(), expected, "{request:?}");
        }
    }

    #[test]
    fn a_shared_fetch_replaces_no_cookie_of_its_client() {
        let set =
            "Set-Cookie: sess=new; Path=/\nX: sess=a\nset-cookie:  lang =de\nSet-Cookie: sess";
        for (request, expected) in [
            ("", set),
            ("Cookie: other=1; Sess=2", set),
            (
                "Cookie: other=1; sess=own",
                "X: sess=a\nset-cookie:  lang =de\nSet-Cookie: sess",
            ),
            // One of the key is sent.
            ("Cookie: lang=fr", set),
            (
                "Cookie: a=1\nCookie: sess=own;lang=fr",
                "X: sess=a\nset-cookie:  lang =de\nSet-Cookie: sess",
            ),
        ] {
            let mut response = fields(set);
            let rules = keyed_and_ignored("lang", "sess");
            remove_replacements(&mut response, fields(request).fields(), &rules);
            assert_eq!(response, fields(expected), "{request}");
        }
        let mut response = fields(set);
        remove_replacements(
            &mut response,
            fields("Cookie: sess=own").fields(),
            &Rules::private(),
        );
        assert_eq!(response, fields(set), "a private cache sends all cookies");
    }

    fn is_personal(rules: &Rules, request: &str) -> bool {
        CookieFacts::of(fields(request).fields(), rules).are_personal()
    }

    fn counted(rules: &Rules, request: &str) -> Vec<String> {
        counting(fields(request).fields(), rules)
            .map(|pair| String::from_utf8_lossy(pair).into_owned())
            .collect()
    }

    fn keyed_and_ignored(keyed: &str, ignored: &str) -> Rules {
        Rules {
            cookies_ignored: Patterns::from_iter([ignored]),
            key: KeyRules {
                cookies: vec![keyed.to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        }
    }

    #[test]
    fn the_names_of_personal_cookies_are_reported_and_never_a_value() {
        let check = |rules: &Rules, request: &str, expected: &[Option<&str>]| {
            let request = fields(request);
            let names = personal(request.fields(), rules);
            let names: Vec<_> = names
                .into_iter()
                .map(|name| name.map(|name| String::from_utf8_lossy(name).into_owned()))
                .collect();
            let names: Vec<_> = names.iter().map(Option::as_deref).collect();
            assert_eq!(names, expected, "{request:?}");
        };
        let plain = Rules::default();
        check(&plain, "", &[]);
        check(&plain, "Cookie: _ga=1", &[]);
        check(
            &plain,
            "Cookie: _ga=1; a=2; b=3\nCookie: c=4",
            &[Some("a"), Some("b"), Some("c")],
        );
        check(&plain, "Cookie: secret", &[None]);
        check(&plain, "Cookie: =secret", &[None]);
        check(&plain, "Cookie: a b=secret", &[None]);
        check(
            &plain,
            "Cookie: _ga=\"1; x=secret\"",
            &[Some("_ga"), Some("x")],
        );
        check(&plain, "Cookie: _ga=1 secret", &[Some("_ga")]);
        let keyed = keyed_and_ignored("lang", "theme");
        check(&keyed, "Cookie: lang=1; theme=2; a=3", &[Some("a")]);
        check(
            &keyed,
            "Cookie: Lang=1; theme=2",
            &[Some("Lang"), Some("theme")],
        );
    }

    #[test]
    fn a_cookie_counts_if_some_program_sees_it() {
        let rules = Rules::default();
        for harmless in [
            "",
            "Cookie:",
            "Cookie: ; ;",
            "Cookie: _ga=1",
            "Cookie: _ga=1; _gid=2; OptanonConsent=x=y&z=(a)",
            "Cookie: _ga=1;_gid=2",
            "Cookie: _ga=1,_gid=2",
            "Cookie: _ga=1\nCookie: _gid=2",
        ] {
            assert!(!is_personal(&rules, harmless), "{harmless}");
        }
        for personal in [
            "Cookie: session=1",
            "Cookie: _ga=1; session=2",
            "Cookie: _ga=1;session=2",
            "Cookie: _ga=1 session=2",
            "Cookie: _ga=1,session=2",
            "Cookie: _ga=1, session=2",
            "Cookie: _ga=1\tsession=2",
            "Cookie: _ga=1;\tsession=2",
            "Cookie: _ga=1\u{a0}session=2",
            "Cookie: _ga=\"1; session=2\"",
            "Cookie: _ga=\"1\"session=2",
            "Cookie: _ga=1\\ session=2",
            "Cookie: $Version=1; _ga=1",
            "Cookie: $Version=\"1\"; _ga=1; $Path=/",
            "Cookie: _ga =1",
            "Cookie: _ga= 1",
            "Cookie: =_ga",
            "Cookie: _ga",
            "Cookie: _GA=1",
            "Cookie: %5fga=1",
            "Cookie: _ga=1\nCookie: session=2",
            "Cookie:\nCookie: session=2",
        ] {
            assert!(is_personal(&rules, personal), "{personal}");
        }
    }

    #[test]
    fn a_keyed_cookie_is_excused_only_where_every_program_sees_it() {
        let rules = keyed_and_ignored("currency", "*");
        let many = format!("Cookie: {}currency=eur", "_ga=1; ".repeat(MAX_PLAIN));
        for keyed in [
            "Cookie: currency=eur",
            "Cookie: _ga=1; currency=eur; x={a}",
            "Cookie: x",
            "Cookie: x=[1]",
            "Cookie: _ga=1\nCookie: currency=eur",
        ] {
            assert!(!is_personal(&rules, keyed), "{keyed}");
        }
        for unclear in [
            "Cookie: _ga=1 currency=eur",
            "Cookie: _ga=\"1; currency=eur\"",
            "Cookie: currency=eur ; x=1",
            "Cookie: currency=e r",
            "Cookie: currency=\"eur\"",
            "Cookie: a[b]=1; currency=eur",
            "Cookie: a=[; currency=eur",
            "Cookie: =x; currency=eur",
            "Cookie: Currency=eur",
            "Cookie: curr%65ncy=eur",
            "Cookie: currency =eur",
            "Cookie: currency[a]=eur",
            &many,
        ] {
            assert!(is_personal(&rules, unclear), "{unclear}");
        }
        let rules = keyed_and_ignored("user_*", "*");
        assert!(!is_personal(&rules, "Cookie: user_a=1; user=2"));
        assert!(is_personal(&rules, "Cookie: user.a=1"));
    }

    #[test]
    fn a_cookie_name_counts_in_every_reading_of_it() {
        for name in [
            "api_key",
            "API_KEY",
            "api.key",
            "api+key",
            "api%5fkey",
            "api[key",
            "api_key[a]",
            "api_key%00x",
            "api_key ",
            "%20api_key",
            "+api_key\t",
        ] {
            assert!(could_be_taken_by(b"api_key", name.as_bytes()), "{name}");
        }
        for name in [
            "apikey",
            "api_keys",
            "xapi_key",
            "api-key",
            "api%255fkey",
            "",
        ] {
            assert!(!could_be_taken_by(b"api_key", name.as_bytes()), "{name}");
        }
        assert!(could_be_taken_by(b"user.*", b"user.id"));
        assert!(!could_be_taken_by(b"user.*", b"user"));
    }

    #[test]
    fn personal_cookies_are_reported_in_the_order_of_the_request() {
        let rules = Rules::default();
        for (request, expected) in [
            ("", &[][..]),
            ("Cookie: _ga=1; b=2;  a=1; _gid=3", &["b=2", "a=1"]),
            ("Cookie: _ga=1", &[]),
            // The end of the first one is ambiguous.
            ("Cookie: _ga=\"1; b=2\"", &["_ga=\"1", "b=2\""]),
            ("Cookie: _ga=1\nCookie: b=2", &["b=2"]),
            ("Cookie: _ga=1,_gid=2", &[]),
        ] {
            assert_eq!(counted(&rules, request), expected, "{request}");
        }
    }

    #[test]
    fn removed_cookies_do_not_count() {
        let mut rules = Rules::default();
        rules.request.removed_cookies = Patterns::from_iter(["theme_*", "seen"]);
        assert!(!is_personal(&rules, "Cookie: theme_x=1; seen=2; _ga=3"));
        assert!(is_personal(&rules, "Cookie: theme_x=1; session=2"));
        // Cookies are classified as they are sent.
        for (line, left) in [
            ("_ga=1;a=2", Some("_ga=1; a=2")),
            ("theme_x=1; seen=2", None),
            ("a=1; seen=2;b=3", Some("a=1; b=3")),
            ("seen=1 session=2", None),
            ("seen=\"1; session=2\"", Some("session=2\"")),
            ("x", Some("x")),
        ] {
            let request = format!("Cookie: {line}");
            let sent = rewritten(fields(&request).fields(), &rules.request);
            let expected = left.map_or(Rewritten::Nothing, |left| Rewritten::Line(left.into()));
            assert_eq!(sent, expected, "{line}");
            assert_eq!(is_personal(&rules, &request), left.is_some(), "{line}");
        }
        let two = fields("Cookie: a=1\nAccept: x\nCookie: b=2;c=3");
        for (request, expected) in [
            (fields(""), Rewritten::Unchanged),
            (fields("Cookie: a=1;b=2"), Rewritten::Unchanged),
            (two, Rewritten::Line(b"a=1; b=2; c=3".to_vec())),
        ] {
            assert_eq!(
                rewritten(request.fields(), &RequestRules::default()),
                expected
            );
        }
        rules.request.removed_cookies = Patterns::from_iter(["*"]);
        assert!(!is_personal(&rules, "Cookie: session=1, x\nCookie: y"));
        let mut rules = Rules::default();
        rules.request.removed_fields.push("Cookie");
        assert!(!is_personal(&rules, "Cookie: session=1"));
    }
}
