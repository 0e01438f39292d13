//! Entries of the presence list as nodes share them: JSON.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::presence::{PresenceEntry, PresenceSubscription, SelectorSyntax};

/// An entry of the presence list.
#[derive(Serialize, Deserialize)]
struct EntryJson<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    node: u64,
    #[serde(borrow)]
    subscriptions: Vec<SelectorJson<'a>>,
}

/// A subscription of it.
#[derive(Serialize, Deserialize)]
struct SelectorJson<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
    /// As in paths; `None`: `topic` of Mercure 0.x.
    match_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// Encodes an entry.
pub(crate) fn write(entry: &PresenceEntry) -> Vec<u8> {
    let each = entry.subscriptions.iter().map(|it| SelectorJson {
        text: Cow::Borrowed(&it.text),
        match_type: it.syntax.match_type().map(Cow::Borrowed),
        payload: it.payload.as_deref(),
    });
    let entry = EntryJson {
        id: Cow::Borrowed(&entry.id),
        node: entry.node,
        subscriptions: each.collect(),
    };
    serde_json::to_vec(&entry).expect("texts and JSON can be written as JSON")
}

/// Decodes an entry; `None` if it is damaged.
pub(crate) fn read(record: &[u8]) -> Option<PresenceEntry> {
    let entry: EntryJson<'_> = serde_json::from_slice(record).ok()?;
    let each = entry.subscriptions.iter().map(|it| {
        let match_type = it.match_type.as_deref();
        Some(PresenceSubscription {
            syntax: match match_type {
                Some(text) => SelectorSyntax::from_match_type(text)?,
                None => SelectorSyntax::Topic,
            },
            text: Arc::from(&*it.text),
            payload: it.payload.map(|payload| payload.to_owned().into()),
        })
    });
    Some(PresenceEntry {
        id: entry.id.into(),
        node: entry.node,
        subscriptions: each.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::selector::{Selector, SelectorCache};
    use super::super::token::Payloads;
    use super::*;

    #[test]
    fn an_entry_is_decoded_as_it_was_encoded() {
        let selectors = SelectorCache::default();
        let template = selectors.topic("/\"é\\{x}").expect("a selector");
        let wanted = [
            (SelectorSyntax::Topic, template),
            (
                SelectorSyntax::Exact,
                Selector::exact("*").expect("a selector"),
            ),
            (
                SelectorSyntax::Pattern,
                Selector::exact("/:a").expect("a selector"),
            ),
        ];
        let entry = PresenceEntry::new("urn:x".to_owned(), &wanted, &Payloads::default());
        let mut entry = entry.expect("an entry");
        entry.node = u64::MAX;
        let payload = RawValue::from_string(r#"{"user": "\u00e9"}"#.to_owned()).expect("JSON");
        entry.subscriptions[0].payload = Some(payload.into());
        let decoded = read(&write(&entry)).expect("an entry");
        assert_eq!((&decoded.id, decoded.node), (&entry.id, entry.node));
        for (one, other) in decoded.subscriptions.iter().zip(&entry.subscriptions) {
            assert_eq!(decoded.describe(one, "1"), entry.describe(other, "1"));
        }
        assert_eq!(decoded.subscriptions.len(), 3);
    }

    #[test]
    fn damaged_entries_are_refused() {
        for text in [
            "",
            "{}",
            r#"{"id":"x","node":-1,"subscriptions":[]}"#,
            r#"{"id":"x","node":1,"subscriptions":[{"text":"a","match_type":"other","payload":null}]}"#,
            r#"{"id":"x","node":1,"subscriptions":[]"#,
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
        assert!(read(b"{\"id\":\"\xFF\",\"node\":1,\"subscriptions\":[]}").is_none());
    }
}
