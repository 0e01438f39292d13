//! Presence: the descriptions of a subscriber's subscriptions.

use std::sync::Arc;

use microcache_policy::percent;
use serde::Serialize;
use serde_json::value::RawValue;

use super::selector::Selector;
use super::token::{PayloadTooLong, Payloads};
use super::update::{PRESENCE_EVENT_TYPE, Update};
use crate::paths::SUBSCRIPTIONS_PATH;

/// The JSON-LD context of descriptions.
const CONTEXT: &str = "https://mercure.rocks/";

/// The syntax of a selector. Descriptions repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorSyntax {
    /// `topic` of Mercure 0.x.
    Topic,
    /// `match` or `match_exact` of Mercure 1.0.
    Exact,
    /// `match_urlpattern` of Mercure 1.0.
    Pattern,
}

impl SelectorSyntax {
    /// Returns the match type of Mercure 1.0, which is also part of paths.
    pub(crate) const fn match_type(self) -> Option<&'static str> {
        match self {
            Self::Topic => None,
            Self::Exact => Some("exact"),
            Self::Pattern => Some("urlpattern"),
        }
    }

    pub(crate) fn from_match_type(text: &str) -> Option<Self> {
        let mut all = [Self::Exact, Self::Pattern].into_iter();
        all.find(|it| it.match_type() == Some(text))
    }
}

/// A described subscription.
#[derive(Debug)]
pub(crate) struct PresenceSubscription {
    pub(crate) syntax: SelectorSyntax,
    pub(crate) text: Arc<str>,
    pub(crate) payload: Option<Arc<RawValue>>,
}

/// An immutable entry of the presence list.
#[derive(Debug)]
pub(crate) struct PresenceEntry {
    /// The subscriber's id, which lasts as long as its connection.
    pub(crate) id: Arc<str>,
    /// The number of the subscriber's node; zero if the hub is not shared.
    pub(crate) node: u64,
    pub(crate) subscriptions: Box<[PresenceSubscription]>,
}

/// The beginning or the end of subscriptions.
#[derive(Clone, Debug)]
pub(crate) struct PresenceChange {
    pub(crate) entry: Arc<PresenceEntry>,
    pub(crate) active: bool,
}

impl PresenceChange {
    pub(crate) fn new(entry: &Arc<PresenceEntry>, active: bool) -> Self {
        let entry = Arc::clone(entry);
        Self { entry, active }
    }

    /// Returns the node of the subscriber.
    pub(crate) fn node(&self) -> u64 {
        self.entry.node
    }
}

/// The JSON of a subscription.
#[derive(Serialize)]
struct SubscriptionJson<'a> {
    #[serde(rename = "@context", skip_serializing_if = "Option::is_none")]
    context: Option<&'static str>,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    matched: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    match_type: Option<&'static str>,
    subscriber: &'a str,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(rename = "lastEventID", skip_serializing_if = "Option::is_none")]
    last_event_id: Option<&'a str>,
}

/// The JSON of a list up to its items.
#[derive(Serialize)]
struct SubscriptionListJson<'a> {
    #[serde(rename = "@context")]
    context: &'static str,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "lastEventID")]
    last_event_id: &'a str,
    subscriptions: [(); 0],
}

/// The end of a list.
pub(crate) const END_OF_LIST: &str = "]}";

/// Encodes a list up to its first item.
pub(crate) fn beginning_of_list(path: &str, last_event_id: &str) -> String {
    let mut text = json(&SubscriptionListJson {
        context: CONTEXT,
        id: path,
        kind: "Subscriptions",
        last_event_id,
        subscriptions: [],
    });
    text.truncate(text.len() - END_OF_LIST.len());
    text
}

impl PresenceEntry {
    /// Creates the entry of a new subscriber, with the payloads of its token.
    pub(crate) fn new(
        id: String,
        wanted: &[(SelectorSyntax, Selector)],
        payloads: &Payloads,
    ) -> Result<Self, PayloadTooLong> {
        let mut subscriptions: Vec<PresenceSubscription> = Vec::with_capacity(wanted.len());
        for (syntax, selector) in wanted {
            let text = selector.text();
            let is_known = |it: &PresenceSubscription| it.syntax == *syntax && it.text == text;
            if !subscriptions.iter().any(is_known) {
                subscriptions.push(PresenceSubscription {
                    syntax: *syntax,
                    payload: payloads.for_selector(&text)?,
                    text,
                });
            }
        }
        Ok(Self {
            id: id.into(),
            node: 0,
            subscriptions: subscriptions.into(),
        })
    }

    /// Returns the subscription with this selector.
    pub(crate) fn find(&self, syntax: SelectorSyntax, text: &str) -> Option<&PresenceSubscription> {
        let mut all = self.subscriptions.iter();
        all.find(|it| it.syntax == syntax && *it.text == *text)
    }

    /// Returns the updates that announce the start or the end of these subscriptions.
    pub(crate) fn events(&self, active: bool, mut new_id: impl FnMut() -> String) -> Vec<Update> {
        let each = self.subscriptions.iter().map(|it| {
            let path = it.path(&self.id);
            let data = json(&SubscriptionJson {
                context: Some(CONTEXT),
                active,
                ..self.description(it, &path)
            });
            let kind = it.syntax.match_type().map(|_| PRESENCE_EVENT_TYPE);
            Update::presence(path.into(), &new_id(), kind, &data)
        });
        each.collect()
    }

    /// Encodes one subscription as a resource.
    pub(crate) fn describe(&self, one: &PresenceSubscription, last_event_id: &str) -> String {
        json(&SubscriptionJson {
            context: Some(CONTEXT),
            last_event_id: Some(last_event_id),
            ..self.description(one, &one.path(&self.id))
        })
    }

    /// Encodes one subscription as a list item.
    pub(crate) fn describe_in_list(&self, one: &PresenceSubscription) -> String {
        json(&self.description(one, &one.path(&self.id)))
    }

    fn description<'a>(
        &'a self,
        one: &'a PresenceSubscription,
        path: &'a str,
    ) -> SubscriptionJson<'a> {
        let match_type = one.syntax.match_type();
        let text = Some(&*one.text);
        SubscriptionJson {
            context: None,
            id: path,
            kind: match_type.map_or("Subscription", |_| "subscription"),
            topic: text.filter(|_| match_type.is_none()),
            matched: text.filter(|_| match_type.is_some()),
            match_type,
            subscriber: &self.id,
            active: true,
            payload: one.payload.as_deref(),
            last_event_id: None,
        }
    }
}

impl PresenceSubscription {
    /// Returns the path of the subscription, which is also the topic of its updates.
    fn path(&self, subscriber: &str) -> String {
        let kind = self.syntax.match_type().into_iter();
        path(kind.chain([&*self.text, subscriber]))
    }
}

/// Builds a path below the list, percent-encoding each segment once (RFC 6570 §3.2.2).
pub(crate) fn path<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut path = SUBSCRIPTIONS_PATH.to_owned();
    for name in names {
        path.push('/');
        percent::encode(name.as_bytes(), b"", &mut path);
    }
    path
}

/// Decodes the segments of a path below the list; `None` if the path is invalid.
pub(crate) fn names(path: &[u8]) -> Option<Vec<String>> {
    let rest = path.strip_prefix(SUBSCRIPTIONS_PATH.as_bytes())?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let names = rest.strip_prefix(b"/")?.split(|&byte| byte == b'/');
    let text = |name| String::from_utf8(percent::decoded(name)?).ok();
    names.map(text).collect()
}

fn json(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("texts and JSON can be written as JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::selector::SelectorCache;
    use super::*;

    fn entry(topic: &str) -> PresenceEntry {
        let selector = SelectorCache::default().topic(topic).expect("a selector");
        let exact = Selector::exact("a").expect("a selector");
        let wanted = [
            (SelectorSyntax::Topic, selector.clone()),
            (SelectorSyntax::Exact, exact),
            (SelectorSyntax::Topic, selector),
        ];
        let payloads = Payloads::default();
        PresenceEntry::new("urn:uuid:1".to_owned(), &wanted, &payloads).expect("a member")
    }

    #[test]
    fn names_are_encoded_once_and_found_again() {
        for (topic, expected) in [
            ("a", "/a"),
            ("", "/"),
            ("*", "/%2A"),
            ("a b+c~d-e.f_g", "/a%20b%2Bc~d-e.f_g"),
            (
                "https://example.com/{id}?a=b",
                "/https%3A%2F%2Fexample.com%2F%7Bid%7D%3Fa%3Db",
            ),
            ("a%2Fb", "/a%252Fb"),
            ("é", "/%C3%A9"),
        ] {
            let written = path([topic].into_iter());
            assert_eq!(written, format!("{SUBSCRIPTIONS_PATH}{expected}"));
            assert_eq!(names(written.as_bytes()), Some(vec![topic.to_owned()]));
        }
        let of = |rest: &str| names(format!("{SUBSCRIPTIONS_PATH}{rest}").as_bytes());
        assert_eq!(of(""), Some(vec![]));
        let two = Some(vec!["a+b:".to_owned(), "é".to_owned()]);
        assert_eq!(of("/a+b:/%c3%a9"), two);
        for wrong in ["x", "/%", "/%4", "/%4x", "/%+4", "/%FF"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_subscription_is_described_as_requested() {
        let entry = entry("/books/{id}");
        let events = entry.events(false, || "urn:uuid:2".to_owned());
        assert_eq!(events.len(), 2, "the same is not told twice");
        assert!(events.iter().all(|it| it.is_private));
        let path = "/.well-known/mercure/subscriptions/%2Fbooks%2F%7Bid%7D/urn%3Auuid%3A1";
        assert_eq!(&*events[0].topics[0], path);
        let event = String::from_utf8_lossy(&events[0].event);
        let expected = format!(
            "id: urn:uuid:2\ndata: {{\"@context\":\"https://mercure.rocks/\",\"id\":\"{path}\",\"type\":\"Subscription\",\
             \"topic\":\"/books/{{id}}\",\"subscriber\":\"urn:uuid:1\",\"active\":false}}\n\n"
        );
        assert_eq!(event, expected);
        let path = "/.well-known/mercure/subscriptions/exact/a/urn%3Auuid%3A1";
        assert_eq!(&*events[1].topics[0], path);
        let event = String::from_utf8_lossy(&events[1].event);
        assert!(
            event.starts_with("id: urn:uuid:2\nevent: mercure\n"),
            "{event}"
        );
        let one = entry.find(SelectorSyntax::Exact, "a").expect("it is there");
        let value: Value = serde_json::from_str(&entry.describe(one, "last")).expect("JSON");
        assert_eq!(
            value,
            json!({
                "@context": "https://mercure.rocks/", "id": path, "type": "subscription", "match": "a", "match_type": "exact",
                "subscriber": "urn:uuid:1", "active": true, "lastEventID": "last",
            })
        );
        assert!(entry.find(SelectorSyntax::Topic, "a").is_none());
    }

    #[test]
    fn a_list_is_parsed_with_any_members() {
        let entry = entry("\"\\");
        let each = entry.subscriptions.iter();
        let each: Vec<_> = each.map(|it| entry.describe_in_list(it)).collect();
        for each in [String::new(), each.join(",")] {
            let text = beginning_of_list("/x\"", "earliest") + &each + END_OF_LIST;
            let list: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(list["id"], "/x\"");
            assert_eq!(list["lastEventID"], "earliest");
            let expected = if each.is_empty() { 0 } else { 2 };
            assert_eq!(
                list["subscriptions"].as_array().map(Vec::len),
                Some(expected)
            );
        }
    }
}
