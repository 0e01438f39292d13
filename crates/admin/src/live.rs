//! Live statistics for dashboards, once a second.
//!
//! A few totals are recorded every second, so that a new dashboard shows the last ten minutes immediately.
//! Snapshots are built only while there are subscribers, once for all of them. A slow subscriber misses
//! snapshots; one that reads nothing for long is disconnected.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::Frame;
use microcache_engine::Outcome;
use microcache_proxy::MetricsSnapshot;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::problem::Problem;

/// Maximum number of concurrent dashboards.
const MAX_WATCHERS: usize = 32;
/// Number of recorded seconds.
const HISTORY: usize = 600;
/// Queue length of a subscriber: the history and the first snapshot.
const SLACK: usize = 2;
/// Consecutive snapshots that a subscriber may miss.
const MOST_LOST: usize = 30;
/// Interval of snapshots.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// Disconnects a subscriber that is too slow.
#[derive(Clone, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    pub(crate) fn cut(&self) {
        self.0.notify_one();
    }

    pub(crate) async fn wanted(&self) {
        self.0.notified().await;
    }
}

/// Subscribers and the history that new ones receive.
#[derive(Default)]
pub(crate) struct LiveStream {
    state: Mutex<LiveState>,
}

#[derive(Default)]
struct LiveState {
    watchers: Vec<LiveSubscriber>,
    history: VecDeque<Point>,
    /// Last snapshot and its time.
    last: Option<(Duration, Bytes)>,
}

struct LiveSubscriber {
    events: mpsc::Sender<Bytes>,
    lost: usize,
    cut: Cut,
}

/// Totals since the start, with the time of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    at: Duration,
    requests: u64,
    /// Requests served from the cache without contacting the origin.
    stored: u64,
    /// Coalesced requests.
    collapsed: u64,
    errors: u64,
    origin: u64,
    /// Bytes of content sent to clients.
    bytes: u64,
    /// Responses with a status of 4xx.
    refused: u64,
    /// Responses with a status of 5xx.
    failed: u64,
}

/// Event stream of one subscriber, as a response body.
pub(crate) struct LiveEvents(mpsc::Receiver<Bytes>);

impl hyper::body::Body for LiveEvents {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(context);
        event.map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

impl LiveStream {
    /// Adds a subscriber if the limit allows: the history first, then a new snapshot.
    pub(crate) fn join(
        &self,
        cut: Cut,
        now: Duration,
        snapshot: impl FnOnce() -> Bytes,
    ) -> Result<LiveEvents, Problem> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = &mut *state;
        watched.watchers.retain(|one| !one.events.is_closed());
        if watched.watchers.len() >= MAX_WATCHERS {
            return Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the limit of {MAX_WATCHERS} open dashboards is reached"),
                "close one of them, or poll GET /v1/stats",
            ));
        }
        let (events, received) = mpsc::channel(SLACK);
        // The queue has room for both.
        let _ = events.try_send(history_event(&watched.history));
        let _ = events.try_send(watched.latest(now, snapshot));
        watched.watchers.push(LiveSubscriber {
            events,
            lost: 0,
            cut,
        });
        Ok(LiveEvents(received))
    }

    /// Records a second.
    pub(crate) fn tick(&self, point: Point, snapshot: impl FnOnce() -> Bytes) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = &mut *state;
        if watched.history.len() == HISTORY {
            watched.history.pop_front();
        }
        watched.history.push_back(point);
        watched.watchers.retain(|one| !one.events.is_closed());
        if watched.watchers.is_empty() {
            watched.last = None;
            return;
        }
        let snapshot = snapshot();
        watched.last = Some((point.at, snapshot.clone()));
        watched.watchers.retain_mut(|one| one.send(&snapshot));
    }
}

impl Point {
    pub(crate) fn of(at: Duration, figures: &MetricsSnapshot) -> Self {
        let [_, _, _, refused, failed] = figures.responses();
        Self {
            at,
            requests: figures.requests(),
            stored: figures.of(Outcome::Hit) + figures.of(Outcome::Stale),
            collapsed: figures.of(Outcome::Collapsed),
            errors: figures.of(Outcome::Error),
            origin: figures.origin().requests,
            bytes: figures.bytes(),
            refused,
            failed,
        }
    }
}

impl LiveState {
    /// Returns the last snapshot, or a new one if a second has passed.
    fn latest(&mut self, now: Duration, snapshot: impl FnOnce() -> Bytes) -> Bytes {
        match &self.last {
            Some((at, last)) if now.saturating_sub(*at) < PERIOD => last.clone(),
            _ => {
                let made = snapshot();
                self.last = Some((now, made.clone()));
                made
            }
        }
    }
}

impl LiveSubscriber {
    /// Returns false if the subscriber is to be disconnected.
    fn send(&mut self, snapshot: &Bytes) -> bool {
        if self.events.try_send(snapshot.clone()).is_ok() {
            self.lost = 0;
            return true;
        }
        self.lost += 1;
        if self.lost <= MOST_LOST {
            return true;
        }
        // Its connection reads nothing, so it would never see the end of the stream.
        self.cut.cut();
        false
    }
}

/// Encodes the recorded seconds as an event.
fn history_event(history: &VecDeque<Point>) -> Bytes {
    let points: Vec<_> = history
        .iter()
        .map(|point| {
            let at = point.at.as_millis() as u64;
            [
                at,
                point.requests,
                point.stored,
                point.collapsed,
                point.errors,
                point.origin,
                point.bytes,
                point.refused,
                point.failed,
            ]
        })
        .collect();
    let at = history.back().map_or(Duration::ZERO, |point| point.at);
    let data = json!({
        "columns": [
            "at", "requests", "stored", "collapsed", "errors", "origin", "bytes", "4xx", "5xx",
        ],
        "points": points,
    });
    event("history", at, &data)
}

/// Compact JSON contains no line breaks, so it fits one `data` line.
pub(crate) fn event(name: &str, at: Duration, data: &Value) -> Bytes {
    let at = at.as_millis();
    format!("event: {name}\nid: {at}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use hyper::body::Body as _;

    use super::*;

    const SNAPSHOT: &[u8] = b"snapshot";

    fn after(seconds: u64) -> Point {
        Point {
            at: Duration::from_secs(seconds),
            requests: seconds * 10,
            stored: seconds * 9,
            collapsed: 0,
            errors: 0,
            origin: seconds,
            bytes: seconds * 1000,
            refused: 1,
            failed: 0,
        }
    }

    fn snapshot() -> Bytes {
        Bytes::from_static(SNAPSHOT)
    }

    fn join(live: &LiveStream) -> LiveEvents {
        live.join(Cut::default(), Duration::ZERO, snapshot)
            .expect("there is room")
    }

    /// Returns the events sent to a subscriber and not read yet.
    fn read(events: &mut LiveEvents) -> Vec<Bytes> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = Vec::new();
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *events).poll_frame(&mut context) {
            read.push(frame.into_data().expect("data"));
        }
        read
    }

    fn is_cut(cut: &Cut) -> bool {
        let mut wanted = std::pin::pin!(cut.wanted());
        let mut context = Context::from_waker(std::task::Waker::noop());
        wanted.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn a_new_subscriber_gets_ten_minutes_of_history_and_the_current_state() {
        let live = LiveStream::default();
        for second in 1..=HISTORY as u64 + 1 {
            live.tick(after(second), || unreachable!("nobody watches"));
        }
        let mut events = join(&live);
        let sent = read(&mut events);
        let [history, last] = sent.as_slice() else {
            panic!("{sent:?}");
        };
        assert_eq!(last, SNAPSHOT);
        let history = std::str::from_utf8(history).expect("text");
        let lines: Vec<_> = history.lines().collect();
        assert_eq!(lines[0], "event: history");
        assert_eq!(lines[1], "id: 601000");
        let sent = lines[2].strip_prefix("data: ").expect("data");
        let sent: Value = serde_json::from_str(sent).expect("JSON");
        assert_eq!(
            sent["points"][0],
            json!([2000, 20, 18, 0, 0, 2, 2000, 1, 0])
        );
        assert_eq!(sent["points"].as_array().map(Vec::len), Some(HISTORY));
        assert!(history.ends_with("\n\n"));
    }

    #[test]
    fn a_snapshot_is_made_once_for_all_subscribers() {
        let live = LiveStream::default();
        let mut all: Vec<_> = (0..MAX_WATCHERS).map(|_| join(&live)).collect();
        for events in &mut all {
            assert_eq!(read(events).len(), 2);
        }
        let mut made = 0;
        live.tick(after(1), || {
            made += 1;
            snapshot()
        });
        assert_eq!(made, 1);
        assert!(all.iter_mut().all(|events| read(events) == [SNAPSHOT]));
        drop(all);
        live.tick(after(2), || unreachable!("nobody watches"));
    }

    #[test]
    fn there_is_room_for_so_many_and_again_when_one_has_left() {
        let live = LiveStream::default();
        let mut all: Vec<_> = (0..MAX_WATCHERS).map(|_| join(&live)).collect();
        let refused = live.join(Cut::default(), Duration::ZERO, snapshot);
        let status = refused.err().map(|why| why.into_response().status());
        assert_eq!(status, Some(StatusCode::SERVICE_UNAVAILABLE));
        all.pop();
        all.push(join(&live));
        assert!(live.join(Cut::default(), Duration::ZERO, snapshot).is_err());
    }

    #[test]
    fn a_slow_subscriber_loses_snapshots_and_then_its_connection() {
        let live = LiveStream::default();
        let (slow, stuck) = (Cut::default(), Cut::default());
        let mut of_slow = live
            .join(slow.clone(), Duration::ZERO, snapshot)
            .expect("room");
        let of_stuck = live
            .join(stuck.clone(), Duration::ZERO, snapshot)
            .expect("room");
        for second in 0..MOST_LOST as u64 {
            live.tick(after(second), snapshot);
        }
        assert!(!is_cut(&slow) && !is_cut(&stuck));
        assert_eq!(read(&mut of_slow).len(), SLACK, "all others are lost");
        live.tick(after(100), snapshot);
        assert!(!is_cut(&slow), "it has read");
        assert!(is_cut(&stuck));
        assert!(of_stuck.0.is_closed());
        assert_eq!(read(&mut of_slow), [SNAPSHOT]);
    }
}
