//! The language of another push cache, Piper, so that its clients work: commands are words, documents are called
//! by what stands behind the path at which the socket was opened, and what is told is the documents themselves.
//!
//! Its filters, `SUBSCRIBE (…)`, and its sorted batches, `SUBSCRIBE * [key]`, are not spoken.

use bytes::Bytes;
use serde::Serialize;

use super::Order;
use crate::changes::change::Change;
use crate::changes::events::Word;
use crate::changes::json::is_json;
use crate::documents::no_url::NoUrl;
use crate::name::{MAX_NAME, Pattern};
use crate::subscribing::subscription::Next;

/// What is remembered of a client that speaks it.
#[derive(Debug, Default)]
pub(crate) struct Piper {
    /// The path before the ids.
    base: String,
    /// What subscriptions are called by it, and what they are of.
    names: Vec<(String, String)>,
    /// What the subscription is to be called that is being made.
    coming: Option<String>,
}

/// That a document is gone, or cannot be had.
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
        // Nothing in it can fail to be written.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Piper {
    /// For a socket that was opened at this path.
    pub(super) fn at(path: &str) -> Self {
        let end = path.rfind('/').map_or(0, |slash| slash + 1);
        Self {
            base: path[..end].to_owned(),
            names: Vec::new(),
            coming: None,
        }
    }

    /// What somebody wants.
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

    /// What an id stands for, in the one way in which subscriptions are written.
    fn url(&self, id: &str) -> Result<String, NoUrl> {
        if self.base.len() + id.len() > MAX_NAME {
            return Err(NoUrl::too_long());
        }
        let url = format!("{}{id}", self.base);
        // What is none is refused later.
        Ok(Pattern::parse(&url).map_or(url, |pattern| pattern.as_written().to_owned()))
    }

    /// A subscription was made, and gets its name. It has one, and there are not so many of them.
    pub(super) fn call(&mut self, url: &str) {
        if let Some(name) = self.coming.take() {
            self.names
                .retain(|(known, named)| *known != name && named != url);
            self.names.push((name, url.to_owned()));
        }
    }

    /// What goes by a name, which it has no longer; otherwise it is an id.
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

    /// What is told: nothing of what there are no words for.
    pub(super) fn told(&self, next: &Next) -> Bytes {
        match next {
            Next::Change(change, _) => self.value(change),
            Next::Word(Word::Reset | Word::Gap) => Bytes::new(),
        }
    }

    /// A document as it is, which is JSON there. Other text is a string, and what is neither is not told.
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
            // It has gone with its name.
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
        // What is refused gets none, however it is written.
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
