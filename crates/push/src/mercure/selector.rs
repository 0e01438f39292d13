//! Topic selectors of subscriptions and tokens.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use url::Url;
use urlpattern::regexp::RegExp;
use urlpattern::{RegexSyntax, UrlPattern, UrlPatternInit, UrlPatternMatchInput};

use crate::template::{MAX_VARIABLES, NoTemplate, Template};

/// Length limit of topics and selectors, in bytes.
pub(crate) const MAX_TOPIC: usize = 1024;
/// Memory limit of each compiled part of a URL pattern, in bytes.
const MAX_COMPILED: usize = 128 * 1024;
/// Limit of cached patterns; others are compiled for each use.
const MAX_KNOWN: usize = 4 * 1024;

/// A set of topics.
#[derive(Clone, Debug)]
pub(crate) enum Selector {
    /// All topics.
    All,
    /// One topic.
    Exact(Arc<str>),
    /// All topics that match.
    Like(Arc<Like>),
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Like {
    pub(crate) written: Written,
    matcher: Matcher,
}

/// The source of a pattern, which identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    /// A URI template.
    Template(Arc<str>),
    /// A URL pattern, and the hub's URL, which supplies a missing scheme and host.
    Pattern(Arc<str>, Arc<Url>),
}

#[derive(Debug)]
enum Matcher {
    Template(Template),
    Pattern(Box<UrlPattern<Bounded>>),
}

/// Error parsing a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSelector {
    #[error("it is longer than {MAX_TOPIC} bytes")]
    TooLong,
    #[error("it has control characters")]
    Control,
    #[error("it has more than {MAX_VARIABLES} variables")]
    TooManyVariables,
    #[error("it is no url pattern (https://urlpattern.spec.whatwg.org), or one that is too large")]
    NoPattern,
}

/// A regular expression of a URL pattern. Matching takes linear time.
#[derive(Debug)]
struct Bounded(Regex);

impl RegExp for Bounded {
    fn syntax() -> RegexSyntax {
        RegexSyntax::Rust
    }

    fn parse(pattern: &str, _flags: &str, _force_eval: bool) -> Result<Self, ()> {
        let compiled = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
        compiled.map(Self).map_err(|_| ())
    }

    fn matches<'a>(&self, text: &'a str) -> Option<Vec<Option<&'a str>>> {
        let captures = self.0.captures(text)?;
        let groups = captures.iter().skip(1);
        Some(groups.map(|it| it.map(|it| it.as_str())).collect())
    }

    fn pattern_string(&self) -> &str {
        self.0.as_str()
    }
}

/// A cache of the patterns in use, so that equal ones are compiled once.
#[derive(Default)]
pub(crate) struct Selectors(Mutex<HashMap<Written, Weak<Like>, RandomState>>);

impl Selectors {
    /// Parses a topic selector of Mercure 0.x: `*`, a URI template, or a topic.
    pub(crate) fn topic(&self, text: &str) -> Result<Selector, NoSelector> {
        check(text)?;
        if text == "*" {
            return Ok(Selector::All);
        }
        if !text.contains('{') {
            return Ok(Selector::Exact(text.into()));
        }
        let written = Written::Template(text.into());
        if let Some(known) = self.known(&written) {
            return Ok(Selector::Like(known));
        }
        match Template::parse(text) {
            Ok(template) => Ok(self.keep(written, Matcher::Template(template))),
            Err(NoTemplate::Malformed) => Ok(Selector::Exact(text.into())),
            Err(NoTemplate::TooManyVariables) => Err(NoSelector::TooManyVariables),
        }
    }

    /// Parses a URL pattern relative to the hub, or `*`.
    pub(crate) fn pattern(&self, text: &str, hub: &Arc<Url>) -> Result<Selector, NoSelector> {
        check(text)?;
        if text == "*" {
            return Ok(Selector::All);
        }
        let written = Written::Pattern(text.into(), Arc::clone(hub));
        if let Some(known) = self.known(&written) {
            return Ok(Selector::Like(known));
        }
        // The library underflows on unbalanced brackets (urlpattern 0.6.0).
        if !has_pairs_of_brackets(text) {
            return Err(NoSelector::NoPattern);
        }
        let base = Some(Url::clone(hub));
        let parsed = UrlPatternInit::parse_constructor_string::<Bounded>(text, base)
            .and_then(|init| UrlPattern::parse(init, <_>::default()));
        let pattern = parsed.map_err(|_| NoSelector::NoPattern)?;
        Ok(self.keep(written, Matcher::Pattern(Box::new(pattern))))
    }

    fn known(&self, written: &Written) -> Option<Arc<Like>> {
        self.0.lock().get(written)?.upgrade()
    }

    fn keep(&self, written: Written, matcher: Matcher) -> Selector {
        let like = Arc::new(Like {
            written: written.clone(),
            matcher,
        });
        let mut known = self.0.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, like| like.strong_count() > 0);
        }
        if known.len() < MAX_KNOWN {
            known.insert(written, Arc::downgrade(&like));
        }
        Selector::Like(like)
    }
}

fn check(text: &str) -> Result<(), NoSelector> {
    if text.len() > MAX_TOPIC {
        return Err(NoSelector::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(NoSelector::Control);
    }
    Ok(())
}

impl Selector {
    /// Parses an exact topic, or `*`.
    pub(crate) fn exact(text: &str) -> Result<Self, NoSelector> {
        check(text)?;
        Ok(match text {
            "*" => Self::All,
            text => Self::Exact(text.into()),
        })
    }

    /// Returns the source text.
    pub(crate) fn text(&self) -> Arc<str> {
        match self {
            Self::All => "*".into(),
            Self::Exact(topic) => Arc::clone(topic),
            Self::Like(like) => match &like.written {
                Written::Template(text) | Written::Pattern(text, _) => Arc::clone(text),
            },
        }
    }

    /// Returns whether the selector may match a topic with this prefix; true if unknown.
    pub(crate) fn may_reach(&self, beginning: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(topic) => topic.starts_with(beginning),
            Self::Like(like) => match &like.written {
                Written::Template(text) => {
                    let literal = text.split('{').next().unwrap_or_default();
                    literal.starts_with(beginning) || beginning.starts_with(literal)
                }
                Written::Pattern(..) => true,
            },
        }
    }

    /// Returns whether the selector matches the topic.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(exact) => **exact == *topic,
            Self::Like(like) => like.matches(topic),
        }
    }
}

impl Like {
    /// Returns whether the pattern matches the topic.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match (&self.written, &self.matcher) {
            // A template also matches a topic that is equal to its text.
            (Written::Template(text), Matcher::Template(template)) => {
                **text == *topic || template.matches(topic)
            }
            (Written::Pattern(_, hub), Matcher::Pattern(pattern)) => {
                let url = hub.join(topic).map(UrlPatternMatchInput::Url);
                url.is_ok_and(|url| pattern.test(url).unwrap_or(false))
            }
            _ => false,
        }
    }
}

/// Returns whether every closing bracket has an opening one.
fn has_pairs_of_brackets(text: &str) -> bool {
    let mut open = 0_usize;
    text.bytes().all(|byte| {
        open += usize::from(byte == b'[');
        byte != b']' || open.checked_sub(1).map(|left| open = left).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub() -> Arc<Url> {
        Arc::new(Url::parse("https://hub.example/.well-known/mercure").expect("a url"))
    }

    fn check_topic(selector: &str, topic: &str, expected: bool) {
        let compiled = Selectors::default().topic(selector).expect("a selector");
        assert_eq!(compiled.matches(topic), expected, "{selector} and {topic}");
    }

    #[test]
    fn a_selector_of_0_x_is_a_topic_or_a_template_or_a_star() {
        for (selector, topic, expected) in [
            ("*", "anything", true),
            ("*", "", true),
            ("foo", "foo", true),
            ("foo", "Foo", false),
            ("foo*", "foobar", false),
            (
                "https://example.com/books/{id}",
                "https://example.com/books/1",
                true,
            ),
            (
                "https://example.com/books/{id}",
                "https://example.com/books/{id}",
                true,
            ),
            (
                "https://example.com/books/{id}",
                "https://example.com/reviews/1",
                false,
            ),
            // An invalid template is a topic.
            ("a{b", "a{b", true),
            ("a{b", "ab", false),
            ("a b{c}", "a b{c}", true),
            ("a b{c}", "a bc", false),
        ] {
            check_topic(selector, topic, expected);
        }
    }

    #[test]
    fn a_url_pattern_is_held_against_urls() {
        for (pattern, topic, expected) in [
            ("*", "anything", true),
            (
                "https://example.net/foo/:random",
                "https://example.net/foo/1",
                true,
            ),
            (
                "https://example.net/foo/:random",
                "https://example.net/bar/1",
                false,
            ),
            (
                "https://example.net/foo/:random",
                "https://example.net/foo/1/2",
                false,
            ),
            (
                "https://example.net/foo/*",
                "https://example.net/foo/1/2",
                true,
            ),
            ("https://EXAMPLE.net/:x", "https://example.NET/y", true),
            ("https://example.net/A", "https://example.net/a", false),
            (
                "https://*.example.net/:x(\\d+)",
                "https://a.example.net/12",
                true,
            ),
            (
                "https://*.example.net/:x(\\d+)",
                "https://a.example.net/x",
                false,
            ),
            // A missing host is the hub's.
            ("/books/:id", "/books/1", true),
            ("/books/:id", "https://hub.example/books/1", true),
            ("/books/:id", "https://other.example/books/1", false),
            ("https://hub.example/books/:id", "/books/1", true),
            ("/books/:id", "https://[", false),
        ] {
            let compiled = Selectors::default()
                .pattern(pattern, &hub())
                .expect("a pattern");
            assert_eq!(compiled.matches(topic), expected, "{pattern} and {topic}");
        }
    }

    #[test]
    fn what_cannot_reach_a_beginning_is_known() {
        for (selector, expected) in [
            ("*", true),
            ("/hub/a", true),
            ("/hub", false),
            ("/other", false),
            ("/hub/{a}", true),
            ("/hub/a{/b}", true),
            ("/hu{+a}", true),
            ("{a}", true),
            ("/hab{a}", false),
            ("/books/{id}", false),
        ] {
            let compiled = Selectors::default().topic(selector).expect("a selector");
            assert_eq!(compiled.may_reach("/hub/"), expected, "{selector}");
            assert_eq!(*compiled.text(), *selector);
        }
        let pattern = Selectors::default().pattern("/books/:id", &hub());
        let pattern = pattern.expect("a pattern");
        assert!(pattern.may_reach("/hub/"));
        assert_eq!(&*pattern.text(), "/books/:id");
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        let selectors = Selectors::default();
        let long = "a".repeat(MAX_TOPIC + 1);
        assert_eq!(selectors.topic(&long).err(), Some(NoSelector::TooLong));
        assert_eq!(Selector::exact("a\nb").err(), Some(NoSelector::Control));
        assert_eq!(Selector::exact("a\u{85}").err(), Some(NoSelector::Control));
        let many = "{a}".repeat(MAX_VARIABLES + 1);
        assert_eq!(
            selectors.topic(&many).err(),
            Some(NoSelector::TooManyVariables)
        );
        for wrong in [
            "https://a]b/",
            "https://{",
            "/a(",
            "/a([)",
            "/:a:a",
            "/(\\w{1000}){100}",
            "http://a/(?<x>y)+(",
        ] {
            let parsed = selectors.pattern(wrong, &hub());
            assert_eq!(parsed.err(), Some(NoSelector::NoPattern), "{wrong}");
        }
    }

    #[test]
    fn what_many_ask_for_is_compiled_once() {
        let selectors = Selectors::default();
        let likes: Vec<_> = (0..3)
            .map(|_| match selectors.topic("/{x}") {
                Ok(Selector::Like(like)) => like,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(likes.iter().all(|like| Arc::ptr_eq(like, &likes[0])));
        for number in 0..2 * MAX_KNOWN {
            let _ = selectors.topic(&format!("/{number}/{{x}}"));
        }
        assert!(selectors.0.lock().len() <= MAX_KNOWN);
    }
}
