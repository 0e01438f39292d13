//! Names of documents, and the patterns that subscribers use.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use microcache_policy::glob;

use crate::template::{MAX_VARIABLES, Template, TemplateError};

/// Length limit of a document's name, in bytes.
pub(crate) const MAX_NAME: usize = 1024;

/// The path of a document, in its normal form (RFC 3986 §6.2.2).
pub(crate) type DocumentName = Arc<str>;

/// A path prefix under which documents are stored. It ends with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

/// Error parsing a name, a prefix or a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A prefix does not begin or end with a slash.
    #[error("a prefix must begin and end with a slash, such as /live/")]
    Slashes,
    /// The path is reserved for well-known URIs (RFC 8615).
    #[error("/.well-known/ is reserved (RFC 8615)")]
    Reserved,
    /// The path is not in its normal form, so caches on the way might treat it as another one.
    #[error(
        "the path is not in normal form: no `.`, `..` or empty segments, and %XX in upper case only where required"
    )]
    NotNormal,
    /// The path is too long.
    #[error("a path may have at most {MAX_NAME} bytes")]
    TooLong,
    /// The text contains braces and is not a URI template.
    #[error("a pattern with braces must be a URI template (RFC 6570) without `*` outside of them")]
    NoTemplate,
    /// The template has too many variables.
    #[error("a template may have at most {MAX_VARIABLES} variables")]
    TooManyVariables,
}

impl Prefix {
    /// Parses a prefix.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if !text.starts_with('/') || !text.ends_with('/') {
            return Err(NameError::Slashes);
        }
        if text.starts_with("/.well-known/") {
            return Err(NameError::Reserved);
        }
        let parts = &text[..text.len() - 1];
        if !parts.is_empty() {
            check(parts.as_bytes())?;
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Parses the name of a document.
pub(crate) fn parse_name(path: &[u8]) -> Result<DocumentName, NameError> {
    check(path)?;
    let text = std::str::from_utf8(path).map_err(|_| NameError::NotNormal)?;
    Ok(text.into())
}

/// Checks that a path is in its normal form.
fn check(path: &[u8]) -> Result<(), NameError> {
    if path.len() > MAX_NAME {
        return Err(NameError::TooLong);
    }
    let Some(path) = path.strip_prefix(b"/") else {
        return Err(NameError::NotNormal);
    };
    let is_normal = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && is_normal_segment(part);
    if path.split(|&byte| byte == b'/').all(is_normal) {
        Ok(())
    } else {
        Err(NameError::NotNormal)
    }
}

fn is_normal_segment(part: &[u8]) -> bool {
    let mut rest = part;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let Some((digits, after)) = rest.split_at_checked(2) else {
                return false;
            };
            match (digit(digits[0]), digit(digits[1])) {
                (Some(high), Some(low)) if !is_unreserved(high << 4 | low) => {}
                _ => return false,
            }
            rest = after;
        } else if !is_unreserved(byte) && !b"!$&'()*+,;=:@".contains(&byte) {
            return false;
        }
    }
    true
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The documents selected by a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pattern {
    /// One document.
    Exact(DocumentName),
    /// All documents whose paths match; `*` matches any run of bytes.
    Glob(DocumentName),
    /// All documents whose paths are an expansion of this URI template.
    Template(TemplatePattern),
}

/// A URI template (RFC 6570) with its source text, which identifies it.
#[derive(Clone, Debug)]
pub(crate) struct TemplatePattern {
    source: DocumentName,
    template: Arc<Template>,
}

impl PartialEq for TemplatePattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for TemplatePattern {}

impl Hash for TemplatePattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.source.hash(state);
    }
}

impl TemplatePattern {
    fn parse(text: &str) -> Result<Self, NameError> {
        // `*` has its own meaning within braces, so the glob `*` is not allowed next to them.
        let mut outside = text.split('{').map(|part| part.split_once('}'));
        let before = text.split('{').next().unwrap_or_default();
        let has_star = |it: Option<(&str, &str)>| it.is_some_and(|(_, after)| after.contains('*'));
        if before.contains('*') || outside.any(has_star) {
            return Err(NameError::NoTemplate);
        }
        let template = Template::parse(text).map_err(|why| match why {
            TemplateError::Malformed => NameError::NoTemplate,
            TemplateError::TooManyVariables => NameError::TooManyVariables,
        })?;
        Ok(Self {
            source: text.into(),
            template: Arc::new(template),
        })
    }
}

impl Pattern {
    /// Parses a pattern. A literal star in the path of a document is written `%2A`.
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        let is_template = text.contains('{');
        if !is_template && !text.contains('*') {
            return parse_name(text.as_bytes()).map(Self::Exact);
        }
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        if !text.starts_with('/') {
            return Err(NameError::NotNormal);
        }
        if is_template {
            return TemplatePattern::parse(text).map(Self::Template);
        }
        // Collapses runs of stars, which are equivalent to one.
        let mut like = String::with_capacity(text.len());
        for letter in text.chars() {
            if letter != '*' || !like.ends_with('*') {
                like.push(letter);
            }
        }
        Ok(Pattern::Glob(like.into()))
    }

    /// Returns the source text.
    pub(crate) fn source(&self) -> &str {
        match self {
            Self::Exact(name) | Pattern::Glob(name) => name,
            Self::Template(shape) => &shape.source,
        }
    }

    /// Returns whether the pattern may match several documents.
    pub(crate) const fn matches_several(&self) -> bool {
        matches!(self, Pattern::Glob(_) | Self::Template(_))
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(one) => **one == *name,
            Pattern::Glob(pattern) => glob::matches(pattern.as_bytes(), name.as_bytes()),
            // The literal prefix rejects most names, and is cheaper than the template.
            Self::Template(shape) => {
                name.starts_with(self.literal_prefix()) && shape.template.matches(name)
            }
        }
    }

    /// Returns the literal prefix of everything that the pattern matches.
    pub(crate) fn literal_prefix(&self) -> &str {
        match self {
            Self::Exact(name) => name,
            Pattern::Glob(_) | Self::Template(_) => fixed_part(self.source()),
        }
    }
}

/// Returns the part of a pattern before the first star or brace.
pub(crate) fn fixed_part(text: &str) -> &str {
    text.split(['*', '{']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_way_to_write_a_name() {
        for path in [
            "/live/x",
            "/a",
            "/live/a%20b",
            "/live/%2F",
            "/live/a:b@c",
            "/live/...",
            "/live/~x-y._",
        ] {
            assert!(parse_name(path.as_bytes()).is_ok(), "{path}");
        }
        for path in [
            "",
            "/",
            "live",
            "/live/",
            "/live//x",
            "/live/./x",
            "/live/..",
            "/live/%41",
            "/live/%2f",
            "/live/%4",
            "/live/a b",
            "/live/\u{e4}",
            "/live/%2E%2E",
        ] {
            assert_eq!(
                parse_name(path.as_bytes()),
                Err(NameError::NotNormal),
                "{path}"
            );
        }
        assert_eq!(
            parse_name(format!("/{}", "x".repeat(MAX_NAME)).as_bytes()),
            Err(NameError::TooLong)
        );
    }

    #[test]
    fn prefixes_are_folders() {
        assert!(Prefix::parse("/live/").is_ok());
        assert!(Prefix::parse("/").is_ok());
        assert_eq!(Prefix::parse("/live"), Err(NameError::Slashes));
        assert_eq!(Prefix::parse("live/"), Err(NameError::Slashes));
        assert_eq!(Prefix::parse("/.well-known/x/"), Err(NameError::Reserved));
        assert_eq!(Prefix::parse("/a/../"), Err(NameError::NotNormal));
        assert_eq!(Prefix::parse("//"), Err(NameError::NotNormal));
    }

    #[test]
    fn patterns_match() {
        let like = Pattern::parse("/news/*").unwrap();
        assert!(like.matches("/news/a") && like.matches("/news/a/b") && !like.matches("/new"));
        assert_eq!(like.literal_prefix(), "/news/");
        let exact = Pattern::parse("/news/a").unwrap();
        assert!(exact.matches("/news/a") && !exact.matches("/news/ab"));
        assert!(Pattern::parse("*").is_err());
        assert_eq!(Pattern::parse("/news/***"), Pattern::parse("/news/*"));
    }

    #[test]
    fn templates_match_their_expansions() {
        for (template, name, expected) in [
            ("/news/{id}", "/news/a", true),
            ("/news/{id}", "/news/a%20b", true),
            ("/news/{id}", "/news/a/b", false),
            ("/news/{id}", "/new", false),
            ("/news{/path*}", "/news/a/b", true),
            ("/news/{a}/of/{b}", "/news/1/of/2", true),
            ("/news/{a}/of/{b}", "/news/1/on/2", false),
        ] {
            let pattern = Pattern::parse(template).expect("a template");
            assert!(pattern.matches_several(), "{template}");
            assert_eq!(pattern.matches(name), expected, "{template} and {name}");
        }
        let template = Pattern::parse("/news/{id}").expect("a template");
        assert_eq!(template.literal_prefix(), "/news/");
        assert_eq!(Ok(&template), Pattern::parse("/news/{id}").as_ref());
        assert_ne!(Ok(&template), Pattern::parse("/news/{other}").as_ref());
        for (text, why) in [
            ("/news/{id", NameError::NoTemplate),
            ("/news/{}", NameError::NoTemplate),
            ("/news/}{a}", NameError::NoTemplate),
            ("/news/{id}*", NameError::NoTemplate),
            ("/*/{id}", NameError::NoTemplate),
            ("news/{id}", NameError::NotNormal),
        ] {
            assert_eq!(Pattern::parse(text), Err(why), "{text}");
        }
        let many = format!("/{}", "{a}".repeat(MAX_VARIABLES + 1));
        assert_eq!(Pattern::parse(&many), Err(NameError::TooManyVariables));
        let long = format!("/{{a}}{}", "x".repeat(MAX_NAME));
        assert_eq!(Pattern::parse(&long), Err(NameError::TooLong));
    }
}
