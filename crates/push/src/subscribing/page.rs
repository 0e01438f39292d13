//! A page of the application that somebody watches. Whoever follows it says what there is of it; whoever
//! watches is told the latest of that. Nothing is remembered of it: what was before is out of date.

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

/// The longest content that is told with a version.
pub const MAX_INLINE: usize = 64 * 1024;
/// And what may become of it when it is written as JSON.
const MAX_INLINE_JSON: usize = 2 * MAX_INLINE;

/// Gives the content of a page, with its media type, when the first comes who wants to be told it.
pub type FindContent = Arc<dyn Fn() -> Option<(String, Vec<u8>)> + Send + Sync>;

/// A page, for all who watch it.
pub struct Page {
    url: Box<str>,
    state: Mutex<State>,
    left: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// How often there was something to tell.
    number: u64,
    news: Option<News>,
    told: Told,
    /// The same with its content, once somebody has asked for that.
    inline: Option<Told>,
    content: Option<FindContent>,
    waiting: Waiting,
}

/// The latest, as it is sent.
#[derive(Clone, Default)]
struct Told {
    event: Bytes,
    json: Bytes,
}

/// What there is of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// This version of it.
    Version {
        /// Another number for other content.
        number: u64,
        /// Its entity tag, where it has one.
        tag: Option<String>,
    },
    /// It was purged.
    Purged,
    /// What the application answers may not be kept, so that nobody knows whether it is another one.
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

/// How somebody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// As JSON, and not as an event.
    pub(crate) as_json: bool,
    /// With the content, if it is short and text.
    pub(crate) inline: bool,
}

impl Page {
    /// A page of which nothing is known yet, as those call it who watch it.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            state: Mutex::default(),
            left: Arc::default(),
        }
    }

    /// Tells all who watch of this, unless they know.
    pub fn tell(&self, news: News) {
        self.tell_with(news, None);
    }

    /// The same of a version whose content can be had.
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
        // It may be the last that holds on to much.
        drop(before);
        woken.wake();
    }

    /// Is told when nobody watches it any more.
    pub fn on_left(&self) -> Arc<Notify> {
        Arc::clone(&self.left)
    }

    /// What there is, with its content if that can be told.
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
        // Nothing in it can fail to be written.
        let json = serde_json::to_string(&said).unwrap_or_default();
        Told {
            event: server_sent(None, event, &json).into(),
            json: json.into(),
        }
    }
}

/// Content as text, if it is some.
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

/// A page, and what somebody who watches it was told.
pub(crate) struct Watching {
    page: Arc<Page>,
    /// It has this version already.
    known: Option<Known>,
    told: u64,
    seat: Option<Seat>,
}

/// What somebody says that he has of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// This version.
    Version(u64),
    /// What had this entity tag.
    Tag(String),
}

impl Known {
    fn is(&self, news: Option<&News>) -> bool {
        let Some(News::Version { number, tag }) = news else {
            return false;
        };
        match self {
            Self::Version(known) => number == known,
            // A variant in another coding has a weak one.
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

    /// It is not to be told of this.
    pub(crate) fn has(&mut self, known: Option<Known>) {
        self.known = known;
    }

    /// Whether there is something that it is not to be told of.
    pub(crate) const fn knows(&self) -> bool {
        self.known.is_some()
    }

    /// What there is to tell. If there is nothing, `waker` is woken when there is.
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
        // Who has it already is told of the next one.
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
            // What is no text has to be fetched, and so has what another program may read in another way.
            ("image/png", b"\x89PNG", "}"),
            ("text/html; charset=iso-8859-1", "ä".as_bytes(), "}"),
            ("text/html", &vec![1; MAX_INLINE / 2], "}"),
        ] {
            assert_eq!(told(media_type, content), expected, "{media_type}");
        }
    }
}
