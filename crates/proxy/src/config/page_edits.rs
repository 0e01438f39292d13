//! Changes of pages between the origin and the cache: holes, tokens, and tags for the browser.

use std::fmt::Write as _;

use lol_html::Selector;
use microcache_policy::edge::{EdgeMode, FragmentPaths};
use microcache_policy::key::split_query;

/// Path of the script that completes pages in the browser.
pub(super) const INCLUDE_PATH: &str = "/.well-known/microcache/include.js";

/// The script that completes pages in the browser.
pub(super) const INCLUDE_SCRIPT: &str = include_str!("../page_edits/include.js");

/// The changes that a route makes to pages before they are stored or sent.
#[derive(Clone, Debug, Default)]
pub struct PageEdits {
    /// The place where fragments are inserted.
    pub assembly: Assembly,
    /// Elements whose content is a fragment.
    pub holes: Vec<Hole>,
    /// Tokens that belong to one visitor.
    pub tokens: Vec<Token>,
    /// The treatment of the origin's own tags.
    pub tags: EdgeMode,
    /// The fragments that the origin's tags may name.
    pub fragments: FragmentPaths,
}

/// The place where fragments are inserted into a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assembly {
    /// Here.
    #[default]
    Server,
    /// In the browser, by a script.
    Browser,
}

/// An element whose content is a fragment.
#[derive(Clone, Debug)]
pub struct Hole {
    /// The element.
    pub select: ElementSelector,
    /// Path and query of the fragment.
    pub include: String,
}

/// A token that belongs to one visitor, such as a nonce.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its place in pages.
    pub place: TokenPlace,
    /// Path and query of the response with the visitor's own.
    pub from: String,
    /// It is inserted here, not by the browser.
    pub wait: bool,
}

/// The place of a token in a page.
#[derive(Clone, Debug)]
pub enum TokenPlace {
    /// An attribute of the selected elements.
    Attribute(ElementSelector, String),
    /// A value in a script: the names up to it, as `object.key`.
    Variable(String),
}

/// A CSS selector.
#[derive(Clone, Debug)]
pub struct ElementSelector {
    text: String,
    pub(crate) parsed: Selector,
}

impl ElementSelector {
    /// Parses a selector.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if !text.bytes().all(is_printable) {
            return Err("write the selector in ASCII".to_owned());
        }
        let parsed = text.parse().map_err(|why| format!("{why}"))?;
        let text = text.to_owned();
        Ok(Self { text, parsed })
    }
}

impl PageEdits {
    /// Returns true if pages are not changed.
    pub fn is_off(&self) -> bool {
        let has_elements = self.assembly == Assembly::Browser && self.tags != EdgeMode::Off;
        !has_elements && !self.is_of_visitors()
    }

    /// Returns true if pages have parts of one visitor that are removed.
    pub(crate) const fn is_of_visitors(&self) -> bool {
        !self.holes.is_empty() || !self.tokens.is_empty()
    }

    /// Returns the URLs of the fragments that these edits themselves include, beside those that tags may name.
    pub fn included(&self) -> impl Iterator<Item = &str> {
        let holes = self.holes.iter().map(|hole| hole.include.as_str());
        let waited = self.tokens.iter().filter(|token| token.wait);
        holes.chain(waited.map(|token| token.from.as_str()))
    }

    /// Returns true if a token has to be there before the head of its page: it may begin a session.
    pub(crate) fn waits_for_tokens(&self) -> bool {
        self.tokens.iter().any(|token| token.wait)
    }

    /// Returns the paths of the responses with a visitor's own tokens.
    pub(crate) fn token_paths(&self) -> impl Iterator<Item = Vec<u8>> {
        let urls = self.tokens.iter().map(|token| token.from.as_bytes());
        urls.map(|url| split_query(url).0.to_vec())
    }

    /// Returns true if changed pages have tags of our own, which are replaced here.
    pub(crate) fn adds_tags(&self) -> bool {
        self.assembly == Assembly::Server && self.included().next().is_some()
    }

    /// Returns the treatment of tags in changed pages. Those of our own are announced.
    pub(super) fn tags_left(&self) -> EdgeMode {
        match (self.assembly, self.tags) {
            (Assembly::Browser, _) => EdgeMode::Off,
            (Assembly::Server, EdgeMode::Off) if self.adds_tags() => EdgeMode::Announced,
            (Assembly::Server, tags) => tags,
        }
    }

    /// Returns the edits in a form that differs for different ones, also across versions.
    pub(super) fn written(&self) -> String {
        let Self {
            assembly,
            holes,
            tokens,
            tags,
            fragments,
        } = self;
        let mut out = format!("{assembly:?} {tags:?} {fragments:?}\n");
        for hole in holes {
            let _ = writeln!(out, "hole {:?} {:?}", hole.select.text, hole.include);
        }
        for token in tokens {
            let _ = match &token.place {
                TokenPlace::Attribute(select, name) => {
                    write!(out, "token {:?} {name:?}", select.text)
                }
                TokenPlace::Variable(name) => write!(out, "variable {name:?}"),
            };
            let _ = writeln!(out, " {:?} {}", token.from, token.wait);
        }
        out
    }

    /// Returns true if pages may have the script that completes them in the browser.
    pub(crate) fn has_script(&self) -> bool {
        let is_browser = self.assembly == Assembly::Browser && !self.is_off();
        is_browser || self.tokens.iter().any(|token| !token.wait)
    }

    /// Returns the element of the script that completes pages in the browser.
    pub(crate) fn script(&self) -> String {
        let fetched = self.tokens.iter().filter(|token| !token.wait);
        let tokens: Vec<String> = fetched.map(Token::to_json).collect();
        let query = match self.assembly {
            Assembly::Server => "?tokens",
            Assembly::Browser => "",
        };
        let mut out = format!("<script type=\"module\" src=\"{INCLUDE_PATH}{query}\"");
        if !tokens.is_empty() {
            let json = escaped(&format!("[{}]", tokens.join(",")));
            let _ = write!(out, " data-microcache-tokens=\"{json}\"");
        }
        out + "></script>"
    }
}

impl Token {
    fn to_json(&self) -> String {
        // All of it is visible ASCII, of which Rust and JSON escape the same.
        let place = match &self.place {
            TokenPlace::Attribute(select, name) => {
                format!("\"select\":{:?},\"attribute\":{name:?}", select.text)
            }
            TokenPlace::Variable(name) => format!("\"variable\":{name:?}"),
        };
        format!("{{{place},\"from\":{:?}}}", self.from)
    }
}

/// Returns text for an attribute in double quotes.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;")
}
