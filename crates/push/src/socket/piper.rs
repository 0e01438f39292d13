//! The protocol of Piper, another push cache: commands are words, documents are named relative to the path of
//! the socket, and events are the documents themselves.
//!
//! Filters, `SUBSCRIBE (…)`, and sorted batches, `SUBSCRIBE * [key]`, are not supported.

use bytes::Bytes;
use serde::Serialize;

use super::SocketCommand;
use crate::changes::change::DocumentChange;
use crate::changes::events::ControlEvent;
use crate::changes::json::is_json;
use crate::documents::url_error::UrlError;
use crate::name::{MAX_NAME, Pattern};
use crate::subscribing::subscription::Delivery;

/// The state of a Piper client.
#[derive(Debug, Default)]
pub(crate) struct Piper {
    /// The path before the ids.
    base: String,
    /// The client's names of its subscriptions, and their URLs.
    names: Vec<(String, String)>,
    /// The name of the subscription in progress.
    next_name: Option<String>,
}

/// A message about a deleted document or an error.
#[derive(Serialize)]
struct PiperReply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rid: Option<&'a str>,
}

impl PiperReply<'_> {
    fn encode(&self) -> Bytes {
        // Serializing these fields cannot fail.
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl Piper {
    /// Creates the state for a socket opened at this path.
    pub(super) fn new(path: &str) -> Self {
        let end = path.rfind('/').map_or(0, |slash| slash + 1);
        Self {
            base: path[..end].to_owned(),
            names: Vec::new(),
            next_name: None,
        }
    }

    /// Parses a command.
    pub(super) fn read(&mut self, text: &str) -> Result<SocketCommand, UrlError> {
        let (verb, rest) = match text.trim().split_once(char::is_whitespace) {
            Some((verb, rest)) => (verb, rest.trim()),
            None => (text.trim(), ""),
        };
        let is = |name: &str| verb.eq_ignore_ascii_case(name);
        if !(is("get") || is("subscribe") || is("unsubscribe")) {
            return Err(unknown());
        }
        if rest.starts_with('(') {
            return Err(UrlError::new(501, "filters are not supported"));
        }
        if rest.contains('[') {
            return Err(UrlError::new(501, "sorted batches are not supported"));
        }
        let mut words = rest.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) if is("unsubscribe") => {
                self.names.clear();
                Ok(SocketCommand::Unsubscribe(None))
            }
            (Some(id), None, None) if is("unsubscribe") => self
                .remove_name(id)
                .map(|url| SocketCommand::Unsubscribe(Some(url))),
            (Some(id), None, None) if is("get") => self.url(id).map(SocketCommand::Get),
            (Some(id), name, None) if is("subscribe") => {
                let url = self.url(id)?;
                if name.is_some_and(|name| name.len() > MAX_NAME) {
                    let why = format!("a name may have at most {MAX_NAME} bytes");
                    return Err(UrlError::new(400, why));
                }
                self.next_name = name.map(str::to_owned);
                Ok(SocketCommand::Subscribe { url, version: None })
            }
            _ => Err(unknown()),
        }
    }

    /// Returns the URL of an id, in the normal form of patterns.
    fn url(&self, id: &str) -> Result<String, UrlError> {
        if self.base.len() + id.len() > MAX_NAME {
            return Err(UrlError::too_long());
        }
        let url = format!("{}{id}", self.base);
        // Invalid patterns are rejected later.
        Ok(Pattern::parse(&url).map_or(url, |pattern| pattern.source().to_owned()))
    }

    /// Names the subscription just made. Each subscription has one name, so their number is limited.
    pub(super) fn record_subscription(&mut self, url: &str) {
        if let Some(name) = self.next_name.take() {
            self.names
                .retain(|(known, named)| *known != name && named != url);
            self.names.push((name, url.to_owned()));
        }
    }

    /// Removes a name and returns its URL; an unknown name is an id.
    fn remove_name(&mut self, name: &str) -> Result<String, UrlError> {
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

    pub(super) fn error(&self, url: Option<&str>, error: &UrlError) -> Bytes {
        let reply = PiperReply {
            admin: None,
            error: Some(&error.message),
            rid: url.map(|url| self.id(url)),
        };
        reply.encode()
    }

    /// Encodes an event; control events have no equivalent.
    pub(super) fn encode_delivery(&self, next: &Delivery) -> Bytes {
        match next {
            Delivery::Change(change, _) => self.value(change),
            Delivery::Control(ControlEvent::Reset | ControlEvent::Gap) => Bytes::new(),
        }
    }

    /// Encodes a document: JSON as it is, other text as a string, binary content as nothing.
    pub(super) fn value(&self, change: &DocumentChange) -> Bytes {
        let Some(content) = &change.content else {
            let reply = PiperReply {
                admin: Some("remove"),
                error: None,
                rid: Some(self.id(&change.name)),
            };
            return reply.encode();
        };
        match content.as_text() {
            None => Bytes::new(),
            Some(_) if is_json(&content.media_type) => content.body.clone(),
            Some(text) => serde_json::to_string(text).unwrap_or_default().into(),
        }
    }
}

fn unknown() -> UrlError {
    UrlError::new(
        400,
        "unknown command; use GET ID, SUBSCRIBE ID [NAME] or UNSUBSCRIBE [ID or NAME]; an ID may be *",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::change::DocumentContent;

    #[test]
    fn commands_are_words() {
        let mut piper = Piper::new("/live/x");
        let url = |id: &str| format!("/live/{id}");
        let subscribe = |id: &str| {
            Ok(SocketCommand::Subscribe {
                url: url(id),
                version: None,
            })
        };
        let leave = |id: &str| Ok(SocketCommand::Unsubscribe(Some(url(id))));
        let status = |status| Err(status);
        for (text, expected) in [
            ("GET John", Ok(SocketCommand::Get(url("John")))),
            ("get *", Ok(SocketCommand::Get(url("*")))),
            (" subscribe \t* ", subscribe("*")),
            ("SUBSCRIBE John mine", subscribe("John")),
            ("UNSUBSCRIBE mine", leave("John")),
            // The name was removed with its subscription.
            ("UNSUBSCRIBE mine", leave("mine")),
            ("Unsubscribe John", leave("John")),
            ("UNSUBSCRIBE", Ok(SocketCommand::Unsubscribe(None))),
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
            let read = piper.read(text).map_err(|error| error.status);
            if let Ok(SocketCommand::Subscribe { url, .. }) = &read {
                piper.record_subscription(url);
            }
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn a_client_has_one_name_for_each_subscription() {
        let mut piper = Piper::new("/");
        for number in 0..1000 {
            let _ = piper.read(&format!("SUBSCRIBE x name{number}"));
            piper.record_subscription("/x");
        }
        assert_eq!(piper.names.len(), 1);
        // A rejected subscription gets no name, however it is written.
        for stars in 1..100 {
            let order = piper.read(&format!("SUBSCRIBE {} more{stars}", "*".repeat(stars)));
            let subscribe = SocketCommand::Subscribe {
                url: "/*".to_owned(),
                version: None,
            };
            assert_eq!(order, Ok(subscribe));
        }
        assert_eq!(piper.names.len(), 1);
        let long = piper.read(&format!("GET {}", "\u{1}".repeat(MAX_NAME)));
        assert_eq!(long, Err(UrlError::too_long()));
        let _ = piper.read("UNSUBSCRIBE x");
        assert!(piper.names.is_empty());
        let long = format!("SUBSCRIBE x {}", "n".repeat(MAX_NAME + 1));
        assert_eq!(piper.read(&long).map_err(|error| error.status), Err(400));
    }

    #[test]
    fn documents_are_sent_unchanged() {
        let piper = Piper::new("/live/");
        let change = |media_type: &str, body: Option<&'static [u8]>| DocumentChange {
            number: 7,
            name: "/live/x".into(),
            content: body.map(|body| DocumentContent {
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
        let why = UrlError::new(404, "not found");
        let error = piper.error(Some("/live/x"), &why);
        assert_eq!(error, r#"{"error":"not found","rid":"x"}"#);
    }
}
