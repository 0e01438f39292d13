//! The directives of `Cache-Control` (RFC 9111 §5.2).
//!
//! A lifetime that is invalid, missing, or given twice with different values becomes zero: RFC 9111 §4.2.1 allows a
//! cache to consider such a response stale. An invalid stale window becomes none.

use crate::fields::split_list;
use crate::syntax::is_token;
use crate::time::Millis;

/// The largest number of seconds; greater ones are clamped (RFC 9111 §1.2.2).
pub(crate) const MAX_DELTA_SECONDS: u64 = 1 << 31;

/// A directive without an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    NoStore,
    NoCache,
    Private,
    Public,
    MustRevalidate,
    ProxyRevalidate,
    /// `must-revalidate` in a malformed spelling: only its restrictions apply.
    MustRevalidateAtLeast,
    MustUnderstand,
}

/// The directives of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    said: u8,
    immutable: bool,
    pub(crate) max_age: Option<Millis>,
    pub(crate) s_maxage: Option<Millis>,
    pub(crate) stale_while_revalidate: Option<Millis>,
    pub(crate) stale_if_error: Option<Millis>,
}

/// The argument of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectiveArgument<'a> {
    None,
    Number(i64),
    Text(&'a [u8]),
    /// White space around the `=`, or an unterminated quoted string.
    Malformed,
}

impl ResponseDirectives {
    pub(crate) const fn says(&self, directive: Directive) -> bool {
        self.said & (1 << directive as u8) != 0
    }

    /// The directive of RFC 8246.
    pub(crate) const fn immutable(&self) -> bool {
        self.immutable
    }

    /// Adds one directive. Restrictions are parsed leniently, permissions strictly.
    pub(crate) fn note(&mut self, name: &[u8], argument: DirectiveArgument<'_>) {
        if !is_token(name) {
            self.note_restrictions(name);
        }
        if let DirectiveArgument::Text(text) = argument
            && !text.starts_with(b"\"")
            && !is_token(text)
        {
            self.note_restrictions(text);
        }
        let plain = argument == DirectiveArgument::None;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        // The length alone excludes most names.
        match name.len() {
            6 if plain && is("public") => self.say(Directive::Public),
            7 if is("max-age") => set_once(&mut self.max_age, argument),
            7 if is("private") && !argument.names_fields() => self.say(Directive::Private),
            8 if is("no-store") => self.say(Directive::NoStore),
            8 if is("no-cache") && !argument.names_fields() => self.say(Directive::NoCache),
            8 if is("s-maxage") => set_once(&mut self.s_maxage, argument),
            9 if is("immutable") => self.immutable = true,
            14 if is("stale-if-error") => set_once(&mut self.stale_if_error, argument),
            15 if is("must-revalidate") => self.say(Directive::MustRevalidate),
            15 if plain && is("must-understand") => self.say(Directive::MustUnderstand),
            16 if is("proxy-revalidate") => self.say(Directive::ProxyRevalidate),
            22 if is("stale-while-revalidate") => {
                set_once(&mut self.stale_while_revalidate, argument);
            }
            _ => {}
        }
    }

    /// Applies restrictions in misspelt lists such as `private; max-age=60` and `no-store no-cache`, whose intention is
    /// clear. `must-revalidate` also permits (RFC 9111 §3.5): here it only restricts.
    fn note_restrictions(&mut self, words: &[u8]) {
        for word in words.split(|b| matches!(b, b';' | b' ' | b'\t')) {
            match word.to_ascii_lowercase().as_slice() {
                b"no-store" => self.say(Directive::NoStore),
                b"no-cache" => self.say(Directive::NoCache),
                b"private" => self.say(Directive::Private),
                b"must-revalidate" => self.say(Directive::MustRevalidateAtLeast),
                b"proxy-revalidate" => self.say(Directive::ProxyRevalidate),
                _ => {}
            }
        }
    }

    /// The directives for a private cache: without `private`, and without `s-maxage` and `proxy-revalidate`, which are
    /// for shared caches (RFC 9111 §5.2.2.7, §5.2.2.8, §5.2.2.10).
    pub(crate) const fn for_private_cache(mut self) -> Self {
        self.said &= !(1 << Directive::Private as u8 | 1 << Directive::ProxyRevalidate as u8);
        self.s_maxage = None;
        self
    }

    const fn say(&mut self, directive: Directive) {
        self.said |= 1 << directive as u8;
    }
}

fn set_once(slot: &mut Option<Millis>, argument: DirectiveArgument<'_>) {
    let value = argument.delta_millis().unwrap_or(0);
    *slot = match *slot {
        Some(before) if before != value => Some(0),
        _ => Some(value),
    };
}

/// The directives of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) max_age: Option<Millis>,
    pub(crate) min_fresh: Option<Millis>,
    /// Accepted staleness, in milliseconds.
    pub(crate) max_stale: Option<Millis>,
    /// Accepted staleness if the origin fails, in milliseconds (RFC 5861 §4).
    pub(crate) stale_if_error: Option<Millis>,
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) only_if_cached: bool,
}

impl RequestDirectives {
    /// Adds one line of `Cache-Control`. An invalid number counts as absent; of two, the stricter one counts.
    pub(crate) fn note_line(&mut self, value: &[u8]) {
        for (name, argument) in of_line(value) {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("max-age") {
                let value = argument.delta_millis();
                self.max_age = self.max_age.into_iter().chain(value).min();
            } else if is("min-fresh") {
                self.min_fresh = self.min_fresh.max(argument.delta_millis());
            } else if is("max-stale") {
                // Without an argument, any staleness is accepted (RFC 9111 §5.2.1.2).
                let any = (argument == DirectiveArgument::None).then_some(Millis::MAX);
                let value = any.or(argument.delta_millis());
                self.max_stale = self.max_stale.into_iter().chain(value).min();
            } else if is("stale-if-error") {
                let value = argument.delta_millis();
                self.stale_if_error = self.stale_if_error.into_iter().chain(value).min();
            } else if is("no-store") {
                self.no_store = true;
            } else if is("no-cache") {
                self.no_cache = true;
            } else if is("only-if-cached") {
                self.only_if_cached = true;
            }
        }
    }
}

impl<'a> DirectiveArgument<'a> {
    /// A number of seconds, bare or quoted, in milliseconds.
    fn delta_millis(self) -> Option<Millis> {
        match self {
            Self::Number(seconds) => u64::try_from(seconds).ok().map(saturated),
            Self::Text(text) => delta_seconds(unquoted(text)).map(saturated),
            Self::None | Self::Malformed => None,
        }
    }

    /// Returns true if this qualifies `private` or `no-cache`: it lists field names, at least one, and nothing else.
    fn names_fields(self) -> bool {
        let mut names = self.field_names().peekable();
        names.peek().is_some() && names.all(is_token)
    }

    /// The field names in the list, unmodified.
    pub(crate) fn field_names(self) -> impl Iterator<Item = &'a [u8]> {
        let text = match self {
            Self::Text(text) => unquoted(text),
            _ => &[],
        };
        split_list(text)
    }
}

/// Parses digits as whole seconds; greater values are clamped to 2^31 (RFC 9111 §1.2.2).
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some((value * 10 + digit).min(MAX_DELTA_SECONDS))
    })
}

const fn saturated(seconds: u64) -> Millis {
    if seconds > MAX_DELTA_SECONDS {
        MAX_DELTA_SECONDS * 1000
    } else {
        seconds * 1000
    }
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .unwrap_or(text)
}

/// The directives of one line. If its quotes are unbalanced, every comma separates, so that a stray quote cannot hide a
/// restriction.
pub(crate) fn of_line(value: &[u8]) -> impl Iterator<Item = (&[u8], DirectiveArgument<'_>)> {
    let paired = quotes_pair_up(value);
    let minding = paired.then(|| split_list(value)).into_iter().flatten();
    let plainly = (!paired)
        .then(|| value.split(|&b| b == b','))
        .into_iter()
        .flatten();
    minding.chain(plainly).map(directive)
}

fn quotes_pair_up(value: &[u8]) -> bool {
    let mut quoted = false;
    let mut escaped = false;
    for &byte in value {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    !quoted
}

fn directive(member: &[u8]) -> (&[u8], DirectiveArgument<'_>) {
    let member = member.trim_ascii();
    let Some(equals) = memchr::memchr(b'=', member) else {
        return (member, DirectiveArgument::None);
    };
    let (name, text) = (&member[..equals], &member[equals + 1..]);
    let argument = if name.trim_ascii_end() != name
        || text.trim_ascii_start() != text
        || !quotes_pair_up(text)
    {
        DirectiveArgument::Malformed
    } else {
        DirectiveArgument::Text(text)
    };
    (name.trim_ascii_end(), argument)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::ResponseFacts;
    use crate::rules::Rules;
    use crate::testing::fields;

    fn read_lines(lines: &str) -> ResponseDirectives {
        ResponseFacts::read(fields(lines).fields(), &Rules::default())
            .said
            .directives
    }

    fn read(value: &str) -> ResponseDirectives {
        read_lines(&format!("Cache-Control: {value}"))
    }

    #[test]
    fn numbers_are_read_strictly_and_saturate() {
        const MOST: Option<Millis> = Some(MAX_DELTA_SECONDS * 1000);
        for (value, expected) in [
            ("max-age=5", Some(5_000)),
            ("MAX-AGE=5", Some(5_000)),
            ("max-age=\"5\"", Some(5_000)),
            ("max-age=007", Some(7_000)),
            ("max-age=2147483648", MOST),
            ("max-age=2147483649", MOST),
            ("max-age=99999999999999999999999999999999999999", MOST),
            ("max-age=-5", Some(0)),
            ("max-age=5.5", Some(0)),
            ("max-age=5s", Some(0)),
            ("max-age='5'", Some(0)),
            ("max-age=\"5", Some(0)),
            ("max-age", Some(0)),
            ("max-age=", Some(0)),
            ("max-age =5", Some(0)),
            ("max-age= 5", Some(0)),
            ("max-age=5, max-age=5", Some(5_000)),
            ("max-age=5, max-age=6", Some(0)),
            ("x-max-age=5", None),
            ("foo=\"max-age=5\"", None),
            ("foo=\"a, max-age=5\", max-age=6", Some(6_000)),
        ] {
            assert_eq!(read(value).max_age, expected, "{value}");
        }
    }

    #[test]
    fn duplicates_in_several_lines_conflict_too() {
        let all = read_lines(
            "Cache-Control: max-age=5\n\
             Cache-control: s-maxage=3\nCACHE-CONTROL: max-age=1",
        );
        assert_eq!((all.max_age, all.s_maxage), (Some(0), Some(3_000)));
    }

    #[test]
    fn restrictive_directives_are_parsed_generously() {
        use Directive::{
            MustRevalidate, MustRevalidateAtLeast, MustUnderstand, NoCache, NoStore, Private,
            ProxyRevalidate, Public,
        };
        for (value, directive, expected) in [
            ("No-Store", NoStore, true),
            ("no-store=1", NoStore, true),
            (",, no-store ,", NoStore, true),
            ("foo=\"bar, no-store", NoStore, true),
            ("foo=\"bar, no-store\"", NoStore, false),
            ("private", Private, true),
            ("private=", Private, true),
            ("private=\"\"", Private, true),
            ("private=\"a b\"", Private, true),
            ("private=\"X-A", Private, true),
            ("private=\"X-A, X-B\"", Private, false),
            ("private=X-A", Private, false),
            ("no-cache", NoCache, true),
            ("no-cache=\"Set-Cookie\"", NoCache, false),
            ("no-cache=\"Set-Cookie\", no-cache", NoCache, true),
            ("must-revalidate", MustRevalidate, true),
            ("proxy-revalidate=x", ProxyRevalidate, true),
            ("private; max-age=60", Private, true),
            ("max-age=60; Private", Private, true),
            ("no-store no-cache", NoStore, true),
            ("no-store\tno-cache", NoCache, true),
            ("max-age=60;no-store;", NoStore, true),
            ("foo=no-store", NoStore, false),
            ("foo=\"no-store;\"", NoStore, false),
            ("max-age=60; must-revalidate", MustRevalidateAtLeast, true),
            ("max-age=60; must-revalidate", MustRevalidate, false),
            ("public; max-age=60", Public, false),
            ("public", Public, true),
            ("public=x", Public, false),
            ("must-understand", MustUnderstand, true),
            ("must-understand=1", MustUnderstand, false),
        ] {
            assert_eq!(read(value).says(directive), expected, "{value}");
        }
        assert!(read("immutable").immutable());
        assert!(read("immutable=x, immutable").immutable());
    }

    #[test]
    fn of_two_request_numbers_the_stricter_counts() {
        let mut request = RequestDirectives::default();
        request.note_line(b"max-age=9, max-age=5, max-age=x, min-fresh=1");
        request.note_line(b"min-fresh=4, only-if-cached, max-stale, max-stale=7");
        assert_eq!(
            request,
            RequestDirectives {
                max_age: Some(5_000),
                min_fresh: Some(4_000),
                max_stale: Some(7_000),
                only_if_cached: true,
                ..RequestDirectives::default()
            }
        );
    }
}
