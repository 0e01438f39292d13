//! Watched pages of the application. One follower per page publishes its status, and subscribers receive the
//! latest one; there is no history.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use microcache_policy::etag::EntityTag;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::changes::events::server_sent;
use crate::changes::json::{essence, is_json};
use crate::waiting::{Seat, Waiting};

/// Size limit of content sent inline with an event, in bytes.
pub const MAX_INLINE: usize = 64 * 1024;
/// Size limit of an event with inline content as JSON, in bytes.
const MAX_INLINE_JSON: usize = 2 * MAX_INLINE;

/// Loads the content and media type of a page, on the first request for inline content.
pub type FindContent = Arc<dyn Fn() -> Option<(String, Vec<u8>)> + Send + Sync>;

/// A watched page, shared by its subscribers.
pub struct Page {
    url: Box<str>,
    state: Mutex<State>,
    left: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Number of statuses published.
    number: u64,
    news: Option<News>,
    told: Told,
    /// The event with inline content, once it was requested.
    inline: Option<Told>,
    content: Option<FindContent>,
    waiting: Waiting,
}

/// An encoded event.
#[derive(Clone, Default)]
struct Told {
    event: Bytes,
    json: Bytes,
}

/// The status of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The current version.
    Version {
        /// Identifies the content; it changes with every other content.
        number: u64,
        /// The entity tag, if any.
        tag: Option<String>,
    },
    /// The page was purged.
    Purged,
    /// The response must not be stored, so its changes cannot be observed.
    Unwatchable,
}

#[derive(Serialize)]
struct Said<'a> {
    event: &'static str,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// The encoding of events for one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// As bare JSON rather than a server-sent event.
    pub(crate) as_json: bool,
    /// With the content inline, if it is text and short enough.
    pub(crate) inline: bool,
}

impl Page {
    /// Creates a page of unknown status; `url` is what subscribers call it.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            state: Mutex::default(),
            left: Arc::default(),
        }
    }

    /// Publishes a status to all subscribers, if it has changed.
    pub fn tell(&self, news: News) {
        self.tell_with(news, None);
    }

    /// Publishes a status with a loader of its content.
    pub fn tell_with(&self, news: News, content: Option<FindContent>) {
        let mut state = self.state.lock();
        if state.news.as_ref() == Some(&news) {
            return;
        }
        state.told = self.encoded(&news, None);
        state.inline = None;
        let before = std::mem::replace(&mut state.content, content);
        state.news = Some(news);
        state.number += 1;
        let woken = state.waiting.happen();
        drop(state);
        // It may be the last reference to a large response.
        drop(before);
        woken.wake();
    }

    /// Returns the notification sent when the last subscriber leaves.
    pub fn on_left(&self) -> Arc<Notify> {
        Arc::clone(&self.left)
    }

    /// Returns the event with inline content, if available; otherwise the plain event.
    fn inline<'a>(&self, state: &'a mut State) -> &'a Told {
        if let Some(find) = state.content.take()
            && let Some(news) = &state.news
            && let Some((media_type, content)) = find()
            && let Some(text) = text_of(&media_type, content)
        {
            let told = self.encoded(news, Some((&media_type, &text)));
            state.inline = Some(told).filter(|it| it.json.len() <= MAX_INLINE_JSON);
        }
        state.inline.as_ref().unwrap_or(&state.told)
    }

    fn encoded(&self, news: &News, content: Option<(&str, &str)>) -> Told {
        let (event, version, etag) = match news {
            News::Version { number, tag } => {
                ("page", Some(format!("{number:016x}")), tag.as_deref())
            }
            News::Purged => ("purge", None, None),
            News::Unwatchable => ("unwatchable", None, None),
        };
        let value = content.and_then(|(media_type, text)| {
            is_json(media_type).then(|| serde_json::from_str(text).ok())?
        });
        let said = Said {
            event,
            url: &self.url,
            version,
            etag,
            media_type: content.map(|(media_type, _)| media_type),
            value,
            text: content.map(|(_, text)| text).filter(|_| value.is_none()),
        };
        // Serializing these fields cannot fail.
        let json = serde_json::to_string(&said).unwrap_or_default();
        Told {
            event: server_sent(None, event, &json).into(),
            json: json.into(),
        }
    }
}

/// Decodes content as text, if it is UTF-8 and not declared otherwise.
fn text_of(media_type: &str, content: Vec<u8>) -> Option<String> {
    let text = String::from_utf8(content).ok()?;
    let parameters = media_type[essence(media_type).len()..].split(';');
    let charset = parameters.filter_map(|it| it.trim().split_once('='));
    let mut charset = charset.filter(|(name, _)| name.eq_ignore_ascii_case("charset"));
    let is_utf8 = |(_, value): (&str, &str)| {
        let value = value.trim_matches('"');
        ["utf-8", "utf8", "us-ascii"]
            .iter()
            .any(|it| it.eq_ignore_ascii_case(value))
    };
    charset.all(is_utf8).then_some(text)
}

impl Drop for Page {
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

/// A subscription to one page.
pub(crate) struct Watching {
    page: Arc<Page>,
    /// The client's copy, of which no event is sent.
    known: Option<Known>,
    told: u64,
    seat: Option<Seat>,
}

/// The validator of the client's copy of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Its version.
    Version(u64),
    /// Its entity tag.
    Tag(String),
}

impl Known {
    fn is(&self, news: Option<&News>) -> bool {
        let Some(News::Version { number, tag }) = news else {
            return false;
        };
        match self {
            Self::Version(known) => number == known,
            // Weak comparison: a variant in another content coding has a weak tag.
            Self::Tag(known) => {
                let now = tag
                    .as_ref()
                    .and_then(|tag| EntityTag::parse(tag.as_bytes()));
                let known = EntityTag::parse(known.as_bytes());
                now.zip(known)
                    .is_some_and(|(now, known)| now.weak_eq(known))
            }
        }
    }
}

impl Watching {
    pub(crate) const fn new(page: Arc<Page>) -> Self {
        Self {
            page,
            known: None,
            told: 0,
            seat: None,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.page.url
    }

    /// Sets the client's copy: the first event is omitted if it is current.
    pub(crate) fn has(&mut self, known: Option<Known>) {
        self.known = known;
    }

    /// Returns whether the client's copy is known.
    pub(crate) const fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// Returns the next event, or registers the waker for it.
    pub(crate) fn next(&mut self, waker: &Waker, manner: Manner) -> Option<Bytes> {
        let mut state = self.page.state.lock();
        if state.number > self.told {
            self.told = state.number;
            let known = self.known.take();
            if !known.is_some_and(|known| known.is(state.news.as_ref())) {
                let told = if manner.inline {
                    self.page.inline(&mut state)
                } else {
                    &state.told
                };
                return Some(
                    if manner.as_json {
                        &told.json
                    } else {
                        &told.event
                    }
                    .clone(),
                );
            }
        }
        self.seat = Some(state.waiting.wait(self.seat, waker));
        None
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.page.state.lock().waiting.leave(seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_is_told_the_latest_once() {
        let page = Arc::new(Page::new("/news/?a=1"));
        let mut watching = Watching::new(Arc::clone(&page));
        let manner = |as_json| Manner {
            as_json,
            inline: false,
        };
        let mut next = |as_json| watching.next(Waker::noop(), manner(as_json));
        assert_eq!(next(true), None);
        let version = |number| News::Version {
            number,
            tag: Some("\"x\"".to_owned()),
        };
        page.tell(version(1));
        page.tell(version(0xab));
        let told =
            r#"{"event":"page","url":"/news/?a=1","version":"00000000000000ab","etag":"\"x\""}"#;
        assert_eq!(next(true).as_deref(), Some(told.as_bytes()));
        page.tell(version(0xab));
        assert_eq!(next(true), None);
        page.tell(News::Purged);
        let told = "event: purge\ndata: {\"event\":\"purge\",\"url\":\"/news/?a=1\"}\n\n";
        assert_eq!(next(false).as_deref(), Some(told.as_bytes()));
        // A subscriber with the current version receives the next one.
        page.tell(version(7));
        let mut informed = Watching::new(Arc::clone(&page));
        informed.has(Some(Known::Version(7)));
        assert_eq!(informed.next(Waker::noop(), manner(true)), None);
        page.tell(version(8));
        assert!(informed.next(Waker::noop(), manner(true)).is_some());
    }

    #[test]
    fn a_page_may_be_known_by_its_entity_tag() {
        for (now, known, expected) in [
            (Some("\"a\""), "\"a\"", true),
            (Some("\"a\""), "W/\"a\"", true),
            (Some("W/\"a\""), "\"a\"", true),
            (Some("\"a\""), "\"b\"", false),
            (Some("a"), "a", false),
            (None, "\"a\"", false),
        ] {
            let news = News::Version {
                number: 1,
                tag: now.map(str::to_owned),
            };
            let known = Known::Tag(known.to_owned());
            assert_eq!(known.is(Some(&news)), expected, "{now:?} and {known:?}");
            assert!(!known.is(Some(&News::Purged)) && !known.is(None));
        }
    }

    #[test]
    fn content_is_told_to_whom_it_is_wanted_by() {
        let told = |media_type: &'static str, content: &[u8]| {
            let page = Arc::new(Page::new("/"));
            let content = content.to_vec();
            let find: FindContent =
                Arc::new(move || Some((media_type.to_owned(), content.clone())));
            let news = News::Version {
                number: 1,
                tag: None,
            };
            page.tell_with(news, Some(find));
            let next = |inline| {
                let manner = Manner {
                    as_json: true,
                    inline,
                };
                let event = Watching::new(Arc::clone(&page)).next(Waker::noop(), manner);
                String::from_utf8(event.expect("news").to_vec()).expect("JSON")
            };
            let without = r#"{"event":"page","url":"/","version":"0000000000000001"}"#;
            assert_eq!(next(false), without);
            let with = next(true);
            assert_eq!(next(true), with, "it is written down once");
            with.strip_prefix(&without[..without.len() - 1])
                .expect("more")
                .to_owned()
        };
        for (media_type, content, expected) in [
            (
                "text/html",
                "<p>\"x\"".as_bytes(),
                r#","type":"text/html","text":"<p>\"x\""}"#,
            ),
            (
                "text/html; charset=\"UTF-8\"",
                "ä".as_bytes(),
                r#","type":"text/html; charset=\"UTF-8\"","text":"ä"}"#,
            ),
            (
                "application/json",
                b"{\"a\": 1}",
                r#","type":"application/json","value":{"a": 1}}"#,
            ),
            (
                "application/json",
                b"{",
                r#","type":"application/json","text":"{"}"#,
            ),
            // Binary content, and text in another charset, has to be fetched.
            ("image/png", b"\x89PNG", "}"),
            ("text/html; charset=iso-8859-1", "ä".as_bytes(), "}"),
            ("text/html", &vec![1; MAX_INLINE / 2], "}"),
        ] {
            assert_eq!(told(media_type, content), expected, "{media_type}");
        }
    }
}
