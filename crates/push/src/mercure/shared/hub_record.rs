//! Entries of the hub's streams.

use microcache_store::redis::{NoReply, Value, from_redis_value};

use super::super::presence::PresenceEntry;
use super::super::presence_record;
use super::super::update::Update;

/// Limit of the entries of each stream in a page.
pub(super) const PAGE: usize = 128;
/// The id before all entries.
const BEGINNING: &str = "0-0";

/// The ids of the last entries read: of an update, and of a presence event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubPosition(pub(super) [String; 2]);

impl HubPosition {
    /// The position before all entries.
    pub(super) fn beginning() -> Self {
        Self([BEGINNING; 2].map(str::to_owned))
    }

    /// Returns the number of the last entry of both streams.
    pub(super) fn number(&self) -> u64 {
        self.0.iter().map(|id| number_of(id)).max().unwrap_or(0)
    }

    /// Returns whether another position is at or behind this one in both streams.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.all(|(here, there)| number_of(here) >= number_of(there))
    }

    /// Moves to a record; false if there are entries between, which this node cannot read any more.
    pub(super) fn advance(&mut self, record: &HubRecord) -> bool {
        let at = &mut self.0[record.stream];
        let is_next = record.before.as_ref().is_none_or(|before| before == at);
        at.clone_from(&record.id);
        is_next
    }

    /// Returns whether no entry of the record's stream has been read.
    pub(super) fn is_at_beginning_for(&self, record: &HubRecord) -> bool {
        self.0[record.stream] == BEGINNING
    }
}

/// An entry of one of the streams.
#[derive(Debug)]
pub(super) struct HubRecord {
    stream: usize,
    id: String,
    pub(super) number: u64,
    /// The id of the entry before; `None` if this one is damaged.
    before: Option<String>,
    /// Its content; `None` if it is damaged.
    pub(super) content: Option<HubContent>,
}

/// The content of an entry.
#[derive(Debug)]
pub(super) enum HubContent {
    Update(Update),
    /// Subscriptions of a subscriber, and true if they begin.
    Presence(PresenceEntry, bool),
}

impl HubRecord {
    fn read(stream: usize, id: String, fields: Vec<Vec<u8>>) -> Self {
        let number = number_of(&id);
        let mut record = Self {
            stream,
            id,
            number,
            before: None,
            content: None,
        };
        if let Ok([head, name, kind, content]) = <[Vec<u8>; 4]>::try_from(fields) {
            let head = String::from_utf8_lossy(&head);
            let before = head.split_once(' ').map(|(before, _)| before.to_owned());
            record.before = before;
            record.content = match (stream, &*kind) {
                (0, kind) => {
                    Update::from_parts(&name, kind, content.into()).map(HubContent::Update)
                }
                (_, b"join" | b"leave") => presence_record::read(&content)
                    .map(|entry| HubContent::Presence(entry, kind == b"join")),
                _ => None,
            };
        }
        record
    }

    /// Returns whether another record is of the same stream.
    pub(super) const fn is_of_stream(&self, other: &Self) -> bool {
        self.stream == other.stream
    }

    /// Returns its id, for messages.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// Reads the reply of `XREAD`: records of both streams, in order, up to where one of them may continue.
pub(super) fn page(reply: Value, keys: &[String]) -> Result<Vec<HubRecord>, NoReply> {
    type Streams = Option<Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>>;
    let streams: Streams = from_redis_value(reply).map_err(|_| NoReply::Unreadable)?;
    let (mut records, mut through) = (Vec::new(), u64::MAX);
    for (key, entries) in streams.unwrap_or_default() {
        let stream = keys.iter().take(2).position(|it| *it == key);
        let stream = stream.ok_or(NoReply::Unreadable)?;
        if entries.len() >= PAGE {
            let last = entries.last().map_or(0, |(id, _)| number_of(id));
            through = through.min(last);
        }
        let entries = entries.into_iter();
        records.extend(entries.map(|(id, fields)| HubRecord::read(stream, id, fields)));
    }
    records.sort_by_key(|record| record.number);
    records.retain(|record| record.number <= through);
    Ok(records)
}

/// Returns the number in the id of an entry.
fn number_of(id: &str) -> u64 {
    let number = id.split_once('-').map_or(id, |(number, _)| number);
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 2] = ["u", "p"];

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn entry(id: &str, fields: &[&str]) -> Value {
        let fields = fields.iter().map(|field| bulk(field)).collect();
        Value::Array(vec![bulk(id), Value::Array(fields)])
    }

    fn update(number: usize, before: usize) -> Value {
        let (head, event) = (
            format!("{before}-0 0 9"),
            format!("id: {number}\ndata: \n\n"),
        );
        let fields = [&*head, "a\nb", "text/event-stream", &*event];
        entry(&format!("{number}-0"), &fields)
    }

    fn presence(number: usize, before: usize) -> Value {
        let record = r#"{"id":"x","node":7,"subscriptions":[]}"#;
        let head = format!("{before}-0 0 9");
        entry(&format!("{number}-0"), &[&head, "x", "leave", record])
    }

    fn read(streams: Vec<(&str, Vec<Value>)>) -> Result<Vec<HubRecord>, NoReply> {
        let streams = streams.into_iter();
        let each =
            streams.map(|(key, entries)| Value::Array(vec![bulk(key), Value::Array(entries)]));
        page(Value::Array(each.collect()), &KEYS.map(str::to_owned))
    }

    fn numbers(records: &[HubRecord]) -> Vec<u64> {
        records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn records_of_both_streams_have_one_order() {
        let streams = vec![
            ("u", vec![update(1, 0), update(4, 1)]),
            ("p", vec![presence(2, 0), presence(3, 2)]),
        ];
        let records = read(streams).expect("records");
        assert_eq!(numbers(&records), [1, 2, 3, 4]);
        let mut at = HubPosition::beginning();
        assert!(records.iter().all(|record| at.advance(record)));
        assert_eq!(at, HubPosition(["4-0", "3-0"].map(str::to_owned)));
        assert_eq!(at.number(), 4);
        assert!(
            matches!(&records[0].content, Some(HubContent::Update(update)) if &*update.id == "1")
        );
        let is_end =
            |it: &HubContent| matches!(it, HubContent::Presence(entry, false) if entry.node == 7);
        assert!(records[1].content.as_ref().is_some_and(is_end));
        assert!(page(Value::Nil, &[]).expect("no records").is_empty());
    }

    #[test]
    fn a_record_waits_for_earlier_ones_of_the_other_stream() {
        let full: Vec<_> = (1..=PAGE)
            .map(|number| update(number, number - 1))
            .collect();
        let later = vec![presence(50, 0), presence(PAGE + 1, 50)];
        let records = read(vec![("u", full), ("p", later)]).expect("records");
        assert_eq!(records.len(), PAGE + 1);
        assert_eq!(
            records.last().map(|record| record.number),
            Some(PAGE as u64)
        );
    }

    #[test]
    fn missing_entries_are_noticed() {
        let records = read(vec![("u", vec![update(5, 3)])]).expect("records");
        for (at, is_next) in [("3-0", true), ("2-0", false), ("4-0", false)] {
            let mut at = HubPosition([at, "0-0"].map(str::to_owned));
            assert_eq!(at.advance(&records[0]), is_next, "{at:?}");
        }
        let at = |update: &str, presence: &str| HubPosition([update, presence].map(str::to_owned));
        for (newest, here, expected) in [
            (at("5-0", "0-0"), at("5-0", "0-0"), true),
            (at("6-0", "9-0"), at("5-0", "0-0"), true),
            (at("4-0", "9-0"), at("5-0", "9-0"), false),
            (at("0-0", "0-0"), at("5-0", "0-0"), false),
        ] {
            assert_eq!(newest.includes(&here), expected, "{newest:?} {here:?}");
        }
    }

    #[test]
    fn damaged_entries_are_skipped() {
        let event = "id: 1\ndata: x\n\n";
        let public = "text/event-stream";
        for fields in [
            &["0-0 0 9", "a", public][..],
            &["x", "y"],
            &[],
            &["0-0 0 9", "a", "text/plain", event],
            &["0-0 0 9", "a", public, "id: 1\ndata: x\n"],
            &["0-0 0 9", "a", public, "data: x\n\n"],
            &["0-0 0 9", "a", public, "id: 1\n\nid: 2\ndata: x\n\n"],
            &["0-0 0 9", "a\n", public, event],
            &["0-0 0 9", "\u{7}", public, event],
        ] {
            let foreign = read(vec![("u", vec![entry("3-7", fields)])]).expect("records");
            assert!(foreign[0].content.is_none(), "{fields:?}");
            let mut at = HubPosition::beginning();
            assert!(at.advance(&foreign[0]), "{fields:?}");
            assert_eq!(at.0[0], "3-7");
        }
        let presence = entry("3-0", &["0-0 0 9", "x", "join", "{"]);
        assert!(
            read(vec![("p", vec![presence])]).expect("records")[0]
                .content
                .is_none()
        );
        assert!(matches!(
            read(vec![("x", Vec::new())]),
            Err(NoReply::Unreadable)
        ));
        assert!(matches!(page(Value::Int(1), &[]), Err(NoReply::Unreadable)));
    }
}
