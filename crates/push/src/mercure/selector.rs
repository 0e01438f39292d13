//! Topic selectors of subscriptions and tokens.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use url::Url;
use urlpattern::regexp::RegExp;
use urlpattern::{RegexSyntax, UrlPattern, UrlPatternInit, UrlPatternMatchInput};

use crate::template::{MAX_VARIABLES, Template, TemplateError};

/// Length limit of topics and selectors, in bytes.
pub(crate) const MAX_TOPIC: usize = 1024;
/// Memory limit of each compiled part of a URL pattern, in bytes.
const MAX_COMPILED: usize = 128 * 1024;
/// Limit of cached patterns; others are compiled for each use.
const MAX_CACHED: usize = 4 * 1024;

/// A set of topics.
#[derive(Clone, Debug)]
pub(crate) enum Selector {
    /// All topics.
    All,
    /// One topic.
    Exact(Arc<str>),
    /// All topics that match.
    Pattern(Arc<TopicPattern>),
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct TopicPattern {
    pub(crate) source: PatternSource,
    matcher: PatternMatcher,
}

/// The source of a pattern, which identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PatternSource {
    /// A URI template.
    Template(Arc<str>),
    /// A URL pattern, and the hub's URL, which supplies a missing scheme and host.
    Pattern(Arc<str>, Arc<Url>),
}

#[derive(Debug)]
enum PatternMatcher {
    Template(Template),
    Pattern(Box<UrlPattern<LinearRegex>>),
}

/// Error parsing a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    #[error("it is longer than {MAX_TOPIC} bytes")]
    TooLong,
    #[error("it contains control characters")]
    Control,
    #[error("it has more than {MAX_VARIABLES} variables")]
    TooManyVariables,
    #[error("it is not a valid URL pattern (https://urlpattern.spec.whatwg.org), or too large")]
    NoPattern,
}

/// A regular expression of a URL pattern. Matching takes linear time.
#[derive(Debug)]
struct LinearRegex(Regex);

impl RegExp for LinearRegex {
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
pub(crate) struct SelectorCache(Mutex<HashMap<PatternSource, Weak<TopicPattern>, RandomState>>);

impl SelectorCache {
    /// Parses a topic selector of Mercure 0.x: `*`, a URI template, or a topic.
    pub(crate) fn topic(&self, text: &str) -> Result<Selector, SelectorError> {
        check(text)?;
        if text == "*" {
            return Ok(Selector::All);
        }
        if !text.contains('{') {
            return Ok(Selector::Exact(text.into()));
        }
        let source = PatternSource::Template(text.into());
        if let Some(known) = self.known(&source) {
            return Ok(Selector::Pattern(known));
        }
        match Template::parse(text) {
            Ok(template) => Ok(self.insert(source, PatternMatcher::Template(template))),
            Err(TemplateError::Malformed) => Ok(Selector::Exact(text.into())),
            Err(TemplateError::TooManyVariables) => Err(SelectorError::TooManyVariables),
        }
    }

    /// Parses a URL pattern relative to the hub, or `*`.
    pub(crate) fn pattern(&self, text: &str, hub: &Arc<Url>) -> Result<Selector, SelectorError> {
        check(text)?;
        if text == "*" {
            return Ok(Selector::All);
        }
        let source = PatternSource::Pattern(text.into(), Arc::clone(hub));
        if let Some(known) = self.known(&source) {
            return Ok(Selector::Pattern(known));
        }
        // The library underflows on unbalanced brackets (urlpattern 0.6.0).
        if !are_brackets_balanced(text) {
            return Err(SelectorError::NoPattern);
        }
        let base = Some(Url::clone(hub));
        let parsed = UrlPatternInit::parse_constructor_string::<LinearRegex>(text, base)
            .and_then(|init| UrlPattern::parse(init, <_>::default()));
        let pattern = parsed.map_err(|_| SelectorError::NoPattern)?;
        Ok(self.insert(source, PatternMatcher::Pattern(Box::new(pattern))))
    }

    fn known(&self, source: &PatternSource) -> Option<Arc<TopicPattern>> {
        self.0.lock().get(source)?.upgrade()
    }

    fn insert(&self, source: PatternSource, matcher: PatternMatcher) -> Selector {
        let pattern = Arc::new(TopicPattern {
            source: source.clone(),
            matcher,
        });
        let mut known = self.0.lock();
        if known.len() >= MAX_CACHED {
            known.retain(|_, pattern| pattern.strong_count() > 0);
        }
        if known.len() < MAX_CACHED {
            known.insert(source, Arc::downgrade(&pattern));
        }
        Selector::Pattern(pattern)
    }
}

fn check(text: &str) -> Result<(), SelectorError> {
    if text.len() > MAX_TOPIC {
        return Err(SelectorError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(SelectorError::Control);
    }
    Ok(())
}

impl Selector {
    /// Parses an exact topic, or `*`.
    pub(crate) fn exact(text: &str) -> Result<Self, SelectorError> {
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
            Selector::Pattern(pattern) => match &pattern.source {
                PatternSource::Template(text) | PatternSource::Pattern(text, _) => Arc::clone(text),
            },
        }
    }

    /// Returns whether the selector may match a topic with this prefix; true if unknown.
    pub(crate) fn may_reach(&self, beginning: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(topic) => topic.starts_with(beginning),
            Selector::Pattern(pattern) => match &pattern.source {
                PatternSource::Template(text) => {
                    let literal = text.split('{').next().unwrap_or_default();
                    literal.starts_with(beginning) || beginning.starts_with(literal)
                }
                PatternSource::Pattern(..) => true,
            },
        }
    }

    /// Returns whether the selector matches the topic.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(exact) => **exact == *topic,
            Selector::Pattern(pattern) => pattern.matches(topic),
        }
    }
}

impl TopicPattern {
    /// Returns whether the pattern matches the topic.
    pub(crate) fn matches(&self, topic: &str) -> bool {
        match (&self.source, &self.matcher) {
            // A template also matches a topic that is equal to its text.
            (PatternSource::Template(text), PatternMatcher::Template(template)) => {
                **text == *topic || template.matches(topic)
            }
            (PatternSource::Pattern(_, hub), PatternMatcher::Pattern(pattern)) => {
                let url = hub.join(topic).map(UrlPatternMatchInput::Url);
                url.is_ok_and(|url| pattern.test(url).unwrap_or(false))
            }
            _ => false,
        }
    }
}

/// Returns whether every closing bracket has an opening one.
fn are_brackets_balanced(text: &str) -> bool {
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
        let compiled = SelectorCache::default()
            .topic(selector)
            .expect("a selector");
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
            let compiled = SelectorCache::default()
                .pattern(pattern, &hub())
                .expect("a pattern");
            assert_eq!(compiled.matches(topic), expected, "{pattern} and {topic}");
        }
    }

    #[test]
    fn selectors_that_cannot_match_a_prefix_are_recognized() {
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
            let compiled = SelectorCache::default()
                .topic(selector)
                .expect("a selector");
            assert_eq!(compiled.may_reach("/hub/"), expected, "{selector}");
            assert_eq!(*compiled.text(), *selector);
        }
        let pattern = SelectorCache::default().pattern("/books/:id", &hub());
        let pattern = pattern.expect("a pattern");
        assert!(pattern.may_reach("/hub/"));
        assert_eq!(&*pattern.text(), "/books/:id");
    }

    #[test]
    fn invalid_selectors_are_refused() {
        let selectors = SelectorCache::default();
        let long = "a".repeat(MAX_TOPIC + 1);
        assert_eq!(selectors.topic(&long).err(), Some(SelectorError::TooLong));
        assert_eq!(Selector::exact("a\nb").err(), Some(SelectorError::Control));
        assert_eq!(
            Selector::exact("a\u{85}").err(),
            Some(SelectorError::Control)
        );
        let many = "{a}".repeat(MAX_VARIABLES + 1);
        assert_eq!(
            selectors.topic(&many).err(),
            Some(SelectorError::TooManyVariables)
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
            assert_eq!(parsed.err(), Some(SelectorError::NoPattern), "{wrong}");
        }
    }

    #[test]
    fn popular_selectors_are_compiled_once() {
        let selectors = SelectorCache::default();
        let patterns: Vec<_> = (0..3)
            .map(|_| match selectors.topic("/{x}") {
                Ok(Selector::Pattern(pattern)) => pattern,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            patterns
                .iter()
                .all(|pattern| Arc::ptr_eq(pattern, &patterns[0]))
        );
        for number in 0..2 * MAX_CACHED {
            let _ = selectors.topic(&format!("/{number}/{{x}}"));
        }
        assert!(selectors.0.lock().len() <= MAX_CACHED);
    }
}
