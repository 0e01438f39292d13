//! Published updates.

use std::sync::Arc;

use bytes::Bytes;
use url::Url;

use super::selector::MAX_TOPIC;
use crate::changes::change::{DocumentChange, DocumentContent};
use crate::changes::events::write_data;
use crate::form::pairs;

/// Limit of topics per update.
const MAX_TOPICS: usize = 100;
/// Length limit of an update's id and type, in bytes.
const MAX_WORD: usize = 1024;
/// Fixed memory cost of an update and of each of its topics, in bytes.
const OVERHEAD: usize = 256;
/// The last event id that requests the whole history. No update has it.
pub(crate) const EARLIEST: &str = "earliest";
/// The type of presence events in Mercure 1.0, which publishers cannot use.
pub(crate) const PRESENCE_EVENT_TYPE: &str = "mercure";
/// Media types that mark public and private updates in the log on disk.
const PUBLIC: &str = "text/event-stream";
const PRIVATE: &str = "text/event-stream; private";
/// The start of an encoded event.
const ID: &str = "id: ";

/// An update, encoded once for all subscribers.
#[derive(Debug)]
pub(crate) struct Update {
    /// The canonical topic first.
    pub(crate) topics: Box<[Arc<str>]>,
    pub(crate) id: Arc<str>,
    pub(crate) is_private: bool,
    /// The newest number of the other log when this update was added.
    pub(crate) other_log_position: u64,
    /// The encoded event.
    pub(crate) event: Bytes,
}

/// Rejection of a publication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpdateError {
    #[error("the form is not UTF-8")]
    NotUtf8,
    #[error("at least one topic is required")]
    NoTopic,
    #[error("an update may have at most {MAX_TOPICS} topics")]
    TooManyTopics,
    #[error("a topic may have at most {MAX_TOPIC} bytes, an id or type {MAX_WORD}")]
    TooLong,
    #[error("{0} contains control characters, such as line breaks")]
    Control(&'static str),
    #[error("a topic must not be empty or `*`, which selects all topics")]
    NoName,
    #[error("topics under /.well-known/mercure are reserved for the hub")]
    Reserved,
    #[error("an id must not be empty, begin with `#` or be `{EARLIEST}`")]
    Id,
    #[error("the type `{PRESENCE_EVENT_TYPE}` is reserved for the hub")]
    TypeOfTheHub,
    #[error("retry must be a number of milliseconds")]
    Retry,
}

impl UpdateError {
    /// Returns whether a size limit is exceeded.
    pub(crate) const fn is_too_large(&self) -> bool {
        matches!(self, Self::TooManyTopics | Self::TooLong)
    }
}

impl Update {
    /// Parses a publication to the hub at this URL; `new_id` supplies a missing id.
    pub(crate) fn read(
        form: &[u8],
        hub: &Url,
        new_id: impl FnOnce() -> String,
    ) -> Result<Self, UpdateError> {
        let mut topics: Vec<Arc<str>> = Vec::new();
        let (mut data, mut id, mut kind, mut retry) = (String::new(), None, None, None);
        let mut is_private = false;
        for pair in pairs(form) {
            let (name, value) = pair.map_err(|_| UpdateError::NotUtf8)?;
            match &*name {
                "topic" if topics.iter().any(|it| **it == *value) => {}
                "topic" if topics.len() == MAX_TOPICS => return Err(UpdateError::TooManyTopics),
                "topic" => topics.push(topic(&value, hub)?),
                "data" => data = value,
                // Only its presence counts.
                "private" => is_private = true,
                "id" => id = Some(value).filter(|it| !it.is_empty()),
                "type" => kind = Some(value).filter(|it| !it.is_empty()),
                "retry" => retry = Some(value).filter(|it| !it.is_empty()),
                _ => {}
            }
        }
        if topics.is_empty() {
            return Err(UpdateError::NoTopic);
        }
        check("the id", id.as_deref())?;
        check("the type", kind.as_deref())?;
        if kind.as_deref() == Some(PRESENCE_EVENT_TYPE) {
            return Err(UpdateError::TypeOfTheHub);
        }
        if id
            .as_ref()
            .is_some_and(|id| id.starts_with('#') || id == EARLIEST)
        {
            return Err(UpdateError::Id);
        }
        if let Some(retry) = &retry
            && !(retry.len() <= 9 && retry.bytes().all(|byte| byte.is_ascii_digit()))
        {
            return Err(UpdateError::Retry);
        }
        let id = id.unwrap_or_else(new_id);
        let event = event(&id, kind.as_deref(), retry.as_deref(), &data);
        Ok(Self {
            topics: topics.into(),
            id: id.into(),
            is_private,
            other_log_position: 0,
            event: event.into(),
        })
    }

    /// Creates a presence update, which is private.
    pub(crate) fn presence(topic: Arc<str>, id: &str, kind: Option<&str>, data: &str) -> Self {
        Self {
            topics: [topic].into(),
            id: id.into(),
            is_private: true,
            other_log_position: 0,
            event: event(id, kind, None, data).into(),
        }
    }

    /// Returns the topics as stored: they contain no line breaks, so that they can be joined.
    pub(crate) fn topic_lines(&self) -> String {
        self.topics.join("\n")
    }

    /// Returns the media type of the event as stored.
    pub(crate) const fn media_type(&self) -> &'static str {
        if self.is_private { PRIVATE } else { PUBLIC }
    }

    /// Converts to the form of the log on disk.
    pub(crate) fn to_change(&self) -> DocumentChange {
        DocumentChange {
            number: 0,
            name: self.topic_lines().into(),
            content: Some(DocumentContent {
                media_type: self.media_type().into(),
                body: self.event.clone(),
            }),
            expires: None,
            delta: None,
        }
    }

    /// Converts from the form of the log on disk; `None` if it is invalid.
    pub(crate) fn from_change(change: &DocumentChange) -> Option<Self> {
        let content = change.content.as_ref()?;
        let (topics, event) = (change.name.as_bytes(), content.body.clone());
        Self::from_parts(topics, content.media_type.as_bytes(), event)
    }

    /// Decodes the stored topics, media type and event; `None` if they are invalid.
    pub(crate) fn from_parts(topics: &[u8], media_type: &[u8], event: Bytes) -> Option<Self> {
        let topics = std::str::from_utf8(topics).ok()?;
        let text = std::str::from_utf8(&event).ok()?;
        let one = text.strip_suffix("\n\n").filter(|it| !it.contains("\n\n"));
        let (id, _) = one?.strip_prefix(ID)?.split_once('\n')?;
        let mut each = topics.split('\n');
        if each.any(|it| it.is_empty() || it.chars().any(char::is_control)) {
            return None;
        }
        let is_private = match std::str::from_utf8(media_type).ok()? {
            PUBLIC => false,
            PRIVATE => true,
            _ => return None,
        };
        Some(Self {
            topics: topics.split('\n').map(Arc::from).collect(),
            id: id.into(),
            is_private,
            other_log_position: 0,
            event,
        })
    }

    /// Returns the memory used by the update and its index entries, in bytes.
    pub(crate) fn size(&self) -> u64 {
        let topics = self.topics.iter().map(|it| 2 * it.len() + OVERHEAD);
        (topics.sum::<usize>() + 2 * self.id.len() + self.event.len() + OVERHEAD) as u64
    }
}

fn topic(text: &str, hub: &Url) -> Result<Arc<str>, UpdateError> {
    if text.len() > MAX_TOPIC {
        return Err(UpdateError::TooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(UpdateError::Control("a topic"));
    }
    if matches!(text, "" | "*") {
        return Err(UpdateError::NoName);
    }
    if is_reserved(text, hub) {
        return Err(UpdateError::Reserved);
    }
    Ok(text.into())
}

/// Returns whether a topic resolves to the hub's URL or below it, in any spelling.
fn is_reserved(topic: &str, hub: &Url) -> bool {
    let Ok(url) = hub.join(topic) else {
        return false;
    };
    // Decoding reserved characters, too, is harmless: no other hub has such a path.
    let path: Vec<u8> = microcache_policy::query::decoded(url.path().as_bytes()).collect();
    let under = path.strip_prefix(hub.path().as_bytes());
    under.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn check(what: &'static str, word: Option<&str>) -> Result<(), UpdateError> {
    match word {
        Some(word) if word.len() > MAX_WORD => Err(UpdateError::TooLong),
        Some(word) if word.chars().any(char::is_control) => Err(UpdateError::Control(what)),
        _ => Ok(()),
    }
}

fn event(id: &str, kind: Option<&str>, retry: Option<&str>, data: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + id.len() + 64);
    for (name, value) in [("id", Some(id)), ("event", kind), ("retry", retry)] {
        if let Some(value) = value {
            for part in [name, ": ", value, "\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
    write_data(&mut out, data);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &str) -> Result<Update, UpdateError> {
        let hub = Url::parse("https://hub.example/.well-known/mercure").expect("a url");
        Update::read(form.as_bytes(), &hub, || "urn:uuid:1".to_owned())
    }

    fn check_event(form: &str, expected: &str) {
        let update = read(form).expect("an update");
        assert_eq!(String::from_utf8_lossy(&update.event), expected, "{form}");
    }

    #[test]
    fn an_update_is_written_down_as_an_event() {
        for (form, expected) in [
            ("topic=a&data=x", "id: urn:uuid:1\ndata: x\n\n"),
            ("topic=a", "id: urn:uuid:1\ndata: \n\n"),
            (
                "topic=a&id=b&type=c&retry=10&data=",
                "id: b\nevent: c\nretry: 10\ndata: \n\n",
            ),
            ("topic=a&id=b&type=&retry=&data=x", "id: b\ndata: x\n\n"),
            (
                "topic=a&id=b&data=1%0A2%0D3%0D%0A4%0A%0D",
                "id: b\ndata: 1\ndata: 2\ndata: 3\ndata: 4\ndata: \ndata: \n\n",
            ),
            // Data cannot add fields to the event.
            (
                "topic=a&id=b&data=x%0Aid:+c%0A%0Aevent:+d",
                "id: b\ndata: x\ndata: id: c\ndata: \ndata: event: d\n\n",
            ),
            (
                "topic=a&id=b&data=+x%00%EF%BB%BF",
                "id: b\ndata:  x\0\u{feff}\n\n",
            ),
            (
                "topic=a&id=%C3%A9&unknown=1&data=x&data=y",
                "id: é\ndata: y\n\n",
            ),
        ] {
            check_event(form, expected);
        }
    }

    #[test]
    fn the_first_topic_is_the_canonical_one() {
        let update = read("topic=b&topic=a&topic=b&private").expect("an update");
        let topics: Vec<&str> = update.topics.iter().map(|it| &**it).collect();
        assert_eq!(topics, ["b", "a"]);
        assert!(update.is_private);
        assert!(!read("topic=b").expect("an update").is_private);
        assert!(read("topic=b&private=").expect("an update").is_private);
        assert!(read("topic=b&private=off").expect("an update").is_private);
    }

    #[test]
    fn an_encoded_update_is_decoded_unchanged() {
        for form in [
            "topic=a&data=x",
            "topic=a&topic=b",
            "topic=%C3%A9+b&topic=/c&id=%22x%22&private&type=t&retry=1&data=1%0A2",
        ] {
            let update = read(form).expect("an update");
            let again = Update::from_change(&update.to_change()).expect("an update");
            assert_eq!(again.topics, update.topics);
            assert_eq!(
                (&again.id, again.is_private, &again.event),
                (&update.id, update.is_private, &update.event)
            );
        }
        let mut other = read("topic=a").expect("an update").to_change();
        other.content = None;
        assert!(Update::from_change(&other).is_none());
    }

    #[test]
    fn ambiguous_updates_are_refused() {
        let long = format!("topic=a&id={}", "x".repeat(MAX_WORD + 1));
        let large = format!("topic={}", "x".repeat(64 * 1024));
        let many: Vec<_> = (0..=MAX_TOPICS).map(|it| format!("topic={it}")).collect();
        let many = many.join("&");
        for (form, expected) in [
            ("", UpdateError::NoTopic),
            ("data=x", UpdateError::NoTopic),
            ("topic=", UpdateError::NoName),
            ("topic=*", UpdateError::NoName),
            ("topic=a%FF", UpdateError::NotUtf8),
            ("topic=a%0Ab", UpdateError::Control("a topic")),
            ("topic=a&id=a%0Adata:+b", UpdateError::Control("the id")),
            ("topic=a&id=a%00", UpdateError::Control("the id")),
            ("topic=a&id=%C2%85", UpdateError::Control("the id")),
            ("topic=a&type=a%0D", UpdateError::Control("the type")),
            ("topic=a&type=mercure", UpdateError::TypeOfTheHub),
            ("topic=a&id=%23a", UpdateError::Id),
            ("topic=a&id=earliest", UpdateError::Id),
            ("topic=a&retry=-1", UpdateError::Retry),
            ("topic=a&retry=1s", UpdateError::Retry),
            ("topic=a&retry=1234567890", UpdateError::Retry),
            (&long, UpdateError::TooLong),
            (&large, UpdateError::TooLong),
            (&many, UpdateError::TooManyTopics),
        ] {
            assert_eq!(read(form).err(), Some(expected), "{form:.80}");
        }
    }

    #[test]
    fn topics_of_the_hub_cannot_be_published_to() {
        for topic in [
            "/.well-known/mercure",
            "/.well-known/mercure/subscriptions/x/y",
            "https://hub.example/.well-known/mercure/x",
            "https://other.example/.well-known/mercure",
            "/.well-known/%256Dercure/x",
            "/.well-known/%6Dercure/x",
            "/.well-known/x/../mercure/x",
            "mercure/x",
        ] {
            let form = format!("topic={}", topic.replace('%', "%25"));
            assert_eq!(
                read(&form).err(),
                (topic != "/.well-known/%256Dercure/x").then_some(UpdateError::Reserved),
                "{topic}"
            );
        }
        assert!(read("topic=/.well-known/mercure2").is_ok());
        assert!(read("topic=https://[/.well-known/mercure").is_ok());
    }
}
