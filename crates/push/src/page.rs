//! A page of the application that somebody watches. Whoever follows it says what there is of it; whoever
//! watches is told the latest of that. Nothing is remembered of it: what was before is out of date.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

use crate::events::server_sent;
use crate::waiting::{Seat, Waiting};

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
        let mut state = self.state.lock();
        if state.news.as_ref() == Some(&news) {
            return;
        }
        state.told = self.encoded(&news);
        state.news = Some(news);
        state.number += 1;
        let woken = state.waiting.happen();
        drop(state);
        woken.wake();
    }

    /// Is told when nobody watches it any more.
    pub fn on_left(&self) -> Arc<Notify> {
        Arc::clone(&self.left)
    }

    fn encoded(&self, news: &News) -> Told {
        let (event, version, etag) = match news {
            News::Version { number, tag } => {
                ("page", Some(format!("{number:016x}")), tag.as_deref())
            }
            News::Purged => ("purge", None, None),
            News::Unwatchable => ("unwatchable", None, None),
        };
        let said = Said {
            event,
            url: &self.url,
            version,
            etag,
        };
        // Nothing in it can fail to be written.
        let json = serde_json::to_string(&said).unwrap_or_default();
        Told {
            event: server_sent(None, event, &json).into(),
            json: json.into(),
        }
    }
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
    known: Option<u64>,
    told: u64,
    seat: Option<Seat>,
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

    /// It is not to be told of this version.
    pub(crate) const fn has(&mut self, version: Option<u64>) {
        self.known = version;
    }

    /// What there is to tell, as an event or as JSON. If there is nothing, `waker` is woken when there is.
    pub(crate) fn next(&mut self, waker: &Waker, as_json: bool) -> Option<Bytes> {
        let mut state = self.page.state.lock();
        if state.number > self.told {
            self.told = state.number;
            let known = self.known.take();
            let is_known =
                matches!(state.news, Some(News::Version { number, .. }) if Some(number) == known);
            if !is_known {
                let told = &state.told;
                return Some(if as_json { &told.json } else { &told.event }.clone());
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
        let mut next = |as_json| watching.next(Waker::noop(), as_json);
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
        informed.has(Some(7));
        assert_eq!(informed.next(Waker::noop(), true), None);
        page.tell(version(8));
        assert!(informed.next(Waker::noop(), true).is_some());
    }
}
