//! Watched pages of the application. One follower per page publishes its status, and subscribers receive the
//! latest one; there is no history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use bytes::Bytes;
use microcache_policy::etag::EntityTag;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::changes::events::encode_event;
use crate::changes::json::{essence, is_json};
use crate::wait_list::{Registration, WaitList};

/// Size limit of content sent inline with an event, in bytes.
pub const MAX_INLINE: usize = 64 * 1024;
/// Size limit of an event with inline content as JSON, in bytes.
const MAX_INLINE_JSON: usize = 2 * MAX_INLINE;

/// Loads the content and media type of a page, on the first request for inline content.
pub type FindContent = Arc<dyn Fn() -> Option<(String, Vec<u8>)> + Send + Sync>;

/// A watched page, shared by its subscribers.
pub struct PageTopic {
    url: Box<str>,
    state: Mutex<State>,
    /// Evicted in favour of another page.
    is_evicted: AtomicBool,
    left: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Number of statuses published.
    number: u64,
    status: Option<PageStatus>,
    encoded: EncodedStatus,
    /// The event with inline content, once it was requested.
    inline: Option<EncodedStatus>,
    content: Option<FindContent>,
    wait_list: WaitList,
}

/// An encoded event.
#[derive(Clone, Default)]
struct EncodedStatus {
    event: Bytes,
    json: Bytes,
}

/// The status of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStatus {
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
struct PageEventJson<'a> {
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
pub(crate) struct PageFormat {
    /// As bare JSON rather than a server-sent event.
    pub(crate) is_json: bool,
    /// With the content inline, if it is text and short enough.
    pub(crate) inline: bool,
}

impl PageTopic {
    /// Creates a page of unknown status; `url` is what subscribers call it.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            state: Mutex::default(),
            is_evicted: AtomicBool::new(false),
            left: Arc::default(),
        }
    }

    /// Publishes a status to all subscribers, if it has changed.
    pub fn publish(&self, status: PageStatus) {
        self.publish_with_content(status, None);
    }

    /// Publishes a status with a loader of its content.
    pub fn publish_with_content(&self, status: PageStatus, content: Option<FindContent>) {
        let state = self.state.lock();
        if !self.is_evicted() {
            self.publish_locked(state, status, content);
        }
    }

    /// Ends the topic in favour of another page. Event streams end, so that their clients reconnect and count anew; long
    /// polls and sockets receive `unwatchable`.
    pub fn evict(&self) {
        let state = self.state.lock();
        self.is_evicted.store(true, Ordering::Relaxed);
        self.publish_locked(state, PageStatus::Unwatchable, None);
        self.left.notify_one();
    }

    /// Returns whether the topic was evicted.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    fn publish_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        status: PageStatus,
        content: Option<FindContent>,
    ) {
        if state.status.as_ref() == Some(&status) && !self.is_evicted() {
            return;
        }
        state.encoded = self.encode(&status, None);
        state.inline = None;
        let before = std::mem::replace(&mut state.content, content);
        state.status = Some(status);
        state.number += 1;
        let wakeups = state.wait_list.notify();
        drop(state);
        // It may be the last reference to a large response.
        drop(before);
        wakeups.wake();
    }

    /// Returns the notification sent when the last subscriber leaves, or the topic is evicted.
    pub fn on_last_left(&self) -> Arc<Notify> {
        Arc::clone(&self.left)
    }

    /// Returns the event with inline content, if available; otherwise the plain event.
    fn inline<'a>(&self, state: &'a mut State) -> &'a EncodedStatus {
        if let Some(find) = state.content.take()
            && let Some(status) = &state.status
            && let Some((media_type, content)) = find()
            && let Some(text) = text_of(&media_type, content)
        {
            let encoded = self.encode(status, Some((&media_type, &text)));
            state.inline = Some(encoded).filter(|it| it.json.len() <= MAX_INLINE_JSON);
        }
        state.inline.as_ref().unwrap_or(&state.encoded)
    }

    fn encode(&self, status: &PageStatus, content: Option<(&str, &str)>) -> EncodedStatus {
        let (event, version, etag) = match status {
            PageStatus::Version { number, tag } => {
                ("page", Some(format!("{number:016x}")), tag.as_deref())
            }
            PageStatus::Purged => ("purge", None, None),
            PageStatus::Unwatchable => ("unwatchable", None, None),
        };
        let value = content.and_then(|(media_type, text)| {
            is_json(media_type).then(|| serde_json::from_str(text).ok())?
        });
        let fields = PageEventJson {
            event,
            url: &self.url,
            version,
            etag,
            media_type: content.map(|(media_type, _)| media_type),
            value,
            text: content.map(|(_, text)| text).filter(|_| value.is_none()),
        };
        // Serializing these fields cannot fail.
        let json = serde_json::to_string(&fields).unwrap_or_default();
        EncodedStatus {
            event: encode_event(None, event, &json).into(),
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

impl Drop for PageTopic {
    fn drop(&mut self) {
        self.left.notify_one();
    }
}

/// A subscription to one page.
pub(crate) struct PageSubscription {
    page: Arc<PageTopic>,
    /// The client's copy, of which no event is sent.
    client_copy: Option<PageValidator>,
    delivered: u64,
    registration: Option<Registration>,
}

/// The validator of the client's copy of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageValidator {
    /// Its version.
    Version(u64),
    /// Its entity tag.
    Tag(String),
}

impl PageValidator {
    fn matches(&self, status: Option<&PageStatus>) -> bool {
        let Some(PageStatus::Version { number, tag }) = status else {
            return false;
        };
        match self {
            Self::Version(client_copy) => number == client_copy,
            // Weak comparison: a variant in another content coding has a weak tag.
            Self::Tag(client_copy) => {
                let now = tag
                    .as_ref()
                    .and_then(|tag| EntityTag::parse(tag.as_bytes()));
                let client_copy = EntityTag::parse(client_copy.as_bytes());
                now.zip(client_copy)
                    .is_some_and(|(now, client_copy)| now.weak_eq(client_copy))
            }
        }
    }
}

impl PageSubscription {
    pub(crate) const fn new(page: Arc<PageTopic>) -> Self {
        Self {
            page,
            client_copy: None,
            delivered: 0,
            registration: None,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.page.url
    }

    /// Sets the client's copy: the first event is omitted if it is current.
    pub(crate) fn set_client_copy(&mut self, client_copy: Option<PageValidator>) {
        self.client_copy = client_copy;
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.page.is_evicted()
    }

    /// Returns whether the client's copy is known.
    pub(crate) const fn has_client_copy(&self) -> bool {
        self.client_copy.is_some()
    }

    /// Returns the next event, or registers the waker for it.
    pub(crate) fn next(&mut self, waker: &Waker, format: PageFormat) -> Option<Bytes> {
        let mut state = self.page.state.lock();
        if state.number > self.delivered {
            self.delivered = state.number;
            let client_copy = self.client_copy.take();
            if !client_copy.is_some_and(|client_copy| client_copy.matches(state.status.as_ref())) {
                let encoded = if format.inline {
                    self.page.inline(&mut state)
                } else {
                    &state.encoded
                };
                return Some(
                    if format.is_json {
                        &encoded.json
                    } else {
                        &encoded.event
                    }
                    .clone(),
                );
            }
        }
        self.registration = Some(state.wait_list.register(self.registration, waker));
        None
    }
}

impl Drop for PageSubscription {
    fn drop(&mut self) {
        if let Some(registration) = self.registration {
            self.page.state.lock().wait_list.remove(registration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_gets_the_latest_version_once() {
        let page = Arc::new(PageTopic::new("/news/?a=1"));
        let mut subscription = PageSubscription::new(Arc::clone(&page));
        let format = |is_json| PageFormat {
            is_json,
            inline: false,
        };
        let mut next = |is_json| subscription.next(Waker::noop(), format(is_json));
        assert_eq!(next(true), None);
        let version = |number| PageStatus::Version {
            number,
            tag: Some("\"x\"".to_owned()),
        };
        page.publish(version(1));
        page.publish(version(0xab));
        let encoded =
            r#"{"event":"page","url":"/news/?a=1","version":"00000000000000ab","etag":"\"x\""}"#;
        assert_eq!(next(true).as_deref(), Some(encoded.as_bytes()));
        page.publish(version(0xab));
        assert_eq!(next(true), None);
        page.publish(PageStatus::Purged);
        let encoded = "event: purge\ndata: {\"event\":\"purge\",\"url\":\"/news/?a=1\"}\n\n";
        assert_eq!(next(false).as_deref(), Some(encoded.as_bytes()));
        // A subscriber with the current version receives the next one.
        page.publish(version(7));
        let mut informed = PageSubscription::new(Arc::clone(&page));
        informed.set_client_copy(Some(PageValidator::Version(7)));
        assert_eq!(informed.next(Waker::noop(), format(true)), None);
        page.publish(version(8));
        assert!(informed.next(Waker::noop(), format(true)).is_some());
    }

    #[test]
    fn an_evicted_page_publishes_that_and_nothing_more() {
        let page = Arc::new(PageTopic::new("/"));
        let format = PageFormat {
            is_json: true,
            inline: false,
        };
        let mut subscription = PageSubscription::new(Arc::clone(&page));
        // The same status was published before: streams have to end all the same.
        page.publish(PageStatus::Unwatchable);
        assert!(subscription.next(Waker::noop(), format).is_some());
        page.evict();
        assert!(subscription.is_evicted());
        let expected = r#"{"event":"unwatchable","url":"/"}"#;
        assert_eq!(
            subscription.next(Waker::noop(), format).as_deref(),
            Some(expected.as_bytes())
        );
        page.publish(PageStatus::Purged);
        assert_eq!(subscription.next(Waker::noop(), format), None);
    }

    #[test]
    fn a_page_may_be_identified_by_its_entity_tag() {
        for (now, client_copy, expected) in [
            (Some("\"a\""), "\"a\"", true),
            (Some("\"a\""), "W/\"a\"", true),
            (Some("W/\"a\""), "\"a\"", true),
            (Some("\"a\""), "\"b\"", false),
            (Some("a"), "a", false),
            (None, "\"a\"", false),
        ] {
            let status = PageStatus::Version {
                number: 1,
                tag: now.map(str::to_owned),
            };
            let client_copy = PageValidator::Tag(client_copy.to_owned());
            assert_eq!(
                client_copy.matches(Some(&status)),
                expected,
                "{now:?} and {client_copy:?}"
            );
            assert!(!client_copy.matches(Some(&PageStatus::Purged)) && !client_copy.matches(None));
        }
    }

    #[test]
    fn content_is_sent_to_subscribers_that_want_it() {
        let encoded = |media_type: &'static str, content: &[u8]| {
            let page = Arc::new(PageTopic::new("/"));
            let content = content.to_vec();
            let find: FindContent =
                Arc::new(move || Some((media_type.to_owned(), content.clone())));
            let status = PageStatus::Version {
                number: 1,
                tag: None,
            };
            page.publish_with_content(status, Some(find));
            let next = |inline| {
                let format = PageFormat {
                    is_json: true,
                    inline,
                };
                let event = PageSubscription::new(Arc::clone(&page)).next(Waker::noop(), format);
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
            assert_eq!(encoded(media_type, content), expected, "{media_type}");
        }
    }
}
