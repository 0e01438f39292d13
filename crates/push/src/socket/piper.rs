//! The protocol of Piper, another push cache: commands are words, documents are named relative to the path of
//! the socket, and events are the documents themselves.
//!
//! Filters, `SUBSCRIBE (…)`, and sorted batches, `SUBSCRIBE * [key]`, are not supported.

use bytes::Bytes;
use serde::Serialize;

use super::Order;
use crate::changes::change::Change;
use crate::changes::events::Word;
use crate::changes::json::is_json;
use crate::documents::no_url::NoUrl;
use crate::name::{MAX_NAME, Pattern};
use crate::subscribing::subscription::Next;

/// The state of a Piper client.
#[derive(Debug, Default)]
pub(crate) struct Piper {
    /// The path before the ids.
    base: String,
    /// The client's names of its subscriptions, and their URLs.
    names: Vec<(String, String)>,
    /// The name of the subscription in progress.
    coming: Option<String>,
}

/// A message about a deleted document or an error.
#[derive(Serialize)]
struct Said<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rid: Option<&'a str>,
}

impl Said<'_> {
    fn written(&self) -> Bytes {
        // Serializing these fields cannot fail.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Piper {
    /// Creates the state for a socket opened at this path.
    pub(super) fn at(path: &str) -> Self {
        let end = path.rfind('/').map_or(0, |slash| slash + 1);
        Self {
            base: path[..end].to_owned(),
            names: Vec::new(),
            coming: None,
        }
    }

    /// Parses a command.
    pub(super) fn read(&mut self, text: &str) -> Result<Order, NoUrl> {
        let (verb, rest) = match text.trim().split_once(char::is_whitespace) {
            Some((verb, rest)) => (verb, rest.trim()),
            None => (text.trim(), ""),
        };
        let is = |name: &str| verb.eq_ignore_ascii_case(name);
        if !(is("get") || is("subscribe") || is("unsubscribe")) {
            return Err(unknown());
        }
        if rest.starts_with('(') {
            return Err(NoUrl::new(501, "filters are not spoken here"));
        }
        if rest.contains('[') {
            return Err(NoUrl::new(501, "sorted batches are not spoken here"));
        }
        let mut words = rest.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) if is("unsubscribe") => {
                self.names.clear();
                Ok(Order::Unsubscribe(None))
            }
            (Some(id), None, None) if is("unsubscribe") => {
                self.take_named(id).map(|url| Order::Unsubscribe(Some(url)))
            }
            (Some(id), None, None) if is("get") => self.url(id).map(Order::Get),
            (Some(id), name, None) if is("subscribe") => {
                let url = self.url(id)?;
                if name.is_some_and(|name| name.len() > MAX_NAME) {
                    let why = format!("a name has {MAX_NAME} bytes at most");
                    return Err(NoUrl::new(400, why));
                }
                self.coming = name.map(str::to_owned);
                Ok(Order::Subscribe { url, version: None })
            }
            _ => Err(unknown()),
        }
    }

    /// Returns the URL of an id, in the normal form of patterns.
    fn url(&self, id: &str) -> Result<String, NoUrl> {
        if self.base.len() + id.len() > MAX_NAME {
            return Err(NoUrl::too_long());
        }
        let url = format!("{}{id}", self.base);
        // Invalid patterns are rejected later.
        Ok(Pattern::parse(&url).map_or(url, |pattern| pattern.as_written().to_owned()))
    }

    /// Names the subscription just made. Each subscription has one name, so their number is limited.
    pub(super) fn call(&mut self, url: &str) {
        if let Some(name) = self.coming.take() {
            self.names
                .retain(|(known, named)| *known != name && named != url);
            self.names.push((name, url.to_owned()));
        }
    }

    /// Removes a name and returns its URL; an unknown name is an id.
    fn take_named(&mut self, name: &str) -> Result<String, NoUrl> {
        let named = self.names.iter().position(|(known, _)| known == name);
        let url = match named {
            Some(at) => self.names.swap_remove(at).1,
            None => self.url(name)?,
        };
        self.names.retain(|(_, named)| *named != url);
        Ok(url)
    }

    fn id<'a>(&self, url: &'a str) -> &'a str {
        url.strip_prefix(&*self.base).unwrap_or(url)
    }

    pub(super) fn error(&self, url: Option<&str>, error: &NoUrl) -> Bytes {
        let said = Said {
            admin: None,
            error: Some(&error.why),
            rid: url.map(|url| self.id(url)),
        };
        said.written()
    }

    /// Encodes an event; control events have no equivalent.
    pub(super) fn told(&self, next: &Next) -> Bytes {
        match next {
            Next::Change(change, _) => self.value(change),
            Next::Word(Word::Reset | Word::Gap) => Bytes::new(),
        }
    }

    /// Encodes a document: JSON as it is, other text as a string, binary content as nothing.
    pub(super) fn value(&self, change: &Change) -> Bytes {
        let Some(content) = &change.content else {
            let said = Said {
                admin: Some("remove"),
                error: None,
                rid: Some(self.id(&change.name)),
            };
            return said.written();
        };
        match content.as_text() {
            None => Bytes::new(),
            Some(_) if is_json(&content.media_type) => content.body.clone(),
            Some(text) => serde_json::to_string(text).unwrap_or_default().into(),
        }
    }
}

fn unknown() -> NoUrl {
    NoUrl::new(
        400,
        "say GET ID, SUBSCRIBE ID [NAME] or UNSUBSCRIBE [ID or NAME]; an ID may be *",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::Content;

    #[test]
    fn commands_are_words() {
        let mut piper = Piper::at("/live/x");
        let url = |id: &str| format!("/live/{id}");
        let subscribe = |id: &str| {
            Ok(Order::Subscribe {
                url: url(id),
                version: None,
            })
        };
        let leave = |id: &str| Ok(Order::Unsubscribe(Some(url(id))));
        let status = |status| Err(status);
        for (text, expected) in [
            ("GET John", Ok(Order::Get(url("John")))),
            ("get *", Ok(Order::Get(url("*")))),
            (" subscribe \t* ", subscribe("*")),
            ("SUBSCRIBE John mine", subscribe("John")),
            ("UNSUBSCRIBE mine", leave("John")),
            // The name was removed with its subscription.
            ("UNSUBSCRIBE mine", leave("mine")),
            ("Unsubscribe John", leave("John")),
            ("UNSUBSCRIBE", Ok(Order::Unsubscribe(None))),
            ("SUBSCRIBE (and true false)", status(501)),
            ("SUBSCRIBE * [a b] mine", status(501)),
            ("SUBSCRIBE", status(400)),
            ("SUBSCRIBE a b c", status(400)),
            ("GET", status(400)),
            ("GET a b", status(400)),
            ("PUT a", status(400)),
            ("", status(400)),
            (r#"{"subscribe":"/live/x"}"#, status(400)),
        ] {
            let read = piper.read(text).map_err(|why| why.status);
            if let Ok(Order::Subscribe { url, .. }) = &read {
                piper.call(url);
            }
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn a_client_has_one_name_for_each_subscription() {
        let mut piper = Piper::at("/");
        for number in 0..1000 {
            let _ = piper.read(&format!("SUBSCRIBE x name{number}"));
            piper.call("/x");
        }
        assert_eq!(piper.names.len(), 1);
        // A rejected subscription gets no name, however it is written.
        for stars in 1..100 {
            let order = piper.read(&format!("SUBSCRIBE {} more{stars}", "*".repeat(stars)));
            let subscribe = Order::Subscribe {
                url: "/*".to_owned(),
                version: None,
            };
            assert_eq!(order, Ok(subscribe));
        }
        assert_eq!(piper.names.len(), 1);
        let long = piper.read(&format!("GET {}", "\u{1}".repeat(MAX_NAME)));
        assert_eq!(long, Err(NoUrl::too_long()));
        let _ = piper.read("UNSUBSCRIBE x");
        assert!(piper.names.is_empty());
        let long = format!("SUBSCRIBE x {}", "n".repeat(MAX_NAME + 1));
        assert_eq!(piper.read(&long).map_err(|why| why.status), Err(400));
    }

    #[test]
    fn documents_are_told_as_they_are() {
        let piper = Piper::at("/live/");
        let change = |media_type: &str, body: Option<&'static [u8]>| Change {
            number: 7,
            name: "/live/x".into(),
            content: body.map(|body| Content {
                media_type: media_type.into(),
                body: body.into(),
            }),
            expires: None,
            delta: None,
        };
        for (media_type, body, expected) in [
            ("application/json", Some(&b"{\"a\": 1}"[..]), r#"{"a": 1}"#),
            ("text/plain", Some(b"a\nb"), r#""a\nb""#),
            ("image/png", Some(b"\x89PNG"), ""),
            ("", None, r#"{"admin":"remove","rid":"x"}"#),
        ] {
            assert_eq!(piper.value(&change(media_type, body)), expected);
        }
        let why = NoUrl::new(404, "not found");
        let error = piper.error(Some("/live/x"), &why);
        assert_eq!(error, r#"{"error":"not found","rid":"x"}"#);
    }
}
