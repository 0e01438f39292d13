//! A response body that is being fetched: to the clients and towards the store at once.
//!
//! While it may be stored, every chunk is kept, late readers start at the beginning, and the
//! origin is read as fast as it sends. Once it may not be (it grew over the object limit, or takes too
//! long to arrive), chunks live until the readers have them, no more readers are taken, and the slowest sets the pace.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use microcache_policy::FieldsBuf;

use crate::body::{BodyError, Frame};
use crate::sync::{Mutex, Place, Wakers, wake};

/// How far the fastest reader of an unstorable body may be ahead of the slowest.
const WINDOW: u64 = 1024 * 1024;

/// Bytes of storable bodies under way, over all fills.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    limit: u64,
}

impl Budget {
    /// At most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            used: AtomicU64::new(0),
            limit,
        }
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.limit;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A body being fetched.
#[derive(Debug)]
pub(crate) struct Fill {
    state: Mutex<State>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct State {
    chunks: VecDeque<Bytes>,
    /// The number of the first chunk that is still there.
    first: usize,
    received: u64,
    keep: bool,
    end: Option<Result<Option<FieldsBuf>, BodyError>>,
    readers: Wakers,
    /// How much each reader has taken, by its place.
    taken: Vec<u64>,
    writer: Option<Waker>,
    charged: u64,
}

/// What became of a chunk.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// It is kept with all before it.
    Kept,
    /// It is the first that is not kept. Everything so far, with this chunk.
    Outgrown(Vec<Bytes>),
    /// It lives until the readers have it.
    Streamed,
}

/// Nobody reads this body any more and it will not be stored.
#[derive(Debug)]
pub(crate) struct Unwanted;

impl Fill {
    /// A body that may be stored.
    pub(crate) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        let state = State {
            chunks: VecDeque::new(),
            first: 0,
            received: 0,
            keep: true,
            end: None,
            readers: Wakers::default(),
            taken: Vec::new(),
            writer: None,
            charged: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            budget: Arc::clone(budget),
        })
    }

    /// A reader from the beginning, while the beginning is there and the end is not known to be
    /// missing: whoever is let in gets all of it.
    pub(crate) fn reader(self: &Arc<Self>) -> Option<FillReader> {
        let mut state = self.state.lock();
        let whole = matches!(state.end, Some(Ok(_)));
        let arriving = state.end.is_none() && state.keep;
        if state.first > 0 || !(whole || arriving) {
            return None;
        }
        let place = state.readers.take_place();
        if state.taken.len() <= place.index() {
            state.taken.resize(place.index() + 1, 0);
        }
        state.taken[place.index()] = 0;
        Some(FillReader {
            fill: Arc::clone(self),
            place,
            next: 0,
            skip: 0,
            left: u64::MAX,
            ended: false,
        })
    }

    /// Waits until another chunk is welcome.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Unwanted>> {
        let mut state = self.state.lock();
        if state.keep {
            return Poll::Ready(Ok(()));
        }
        match state.slowest() {
            None => Poll::Ready(Err(Unwanted)),
            Some(taken) if state.received - taken < WINDOW => Poll::Ready(Ok(())),
            Some(_) => {
                state.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Adds a chunk. The body stops being kept for good when it grows beyond `limit` or the budget
    /// for bodies under way is used up.
    pub(crate) fn push(&self, chunk: Bytes, limit: u64) -> Pushed {
        let mut state = self.state.lock();
        let length = chunk.len() as u64;
        state.received += length;
        let was_kept = state.keep;
        if was_kept {
            state.keep = state.received <= limit && self.budget.take(length);
            if state.keep {
                state.charged += length;
            }
        }
        state.chunks.push_back(chunk);
        let pushed = match (was_kept, state.keep) {
            (true, true) => Pushed::Kept,
            (true, false) => Pushed::Outgrown(state.chunks.iter().cloned().collect()),
            (false, _) => Pushed::Streamed,
        };
        let wakers = state.readers.take_all();
        drop(state);
        wake(wakers);
        pushed
    }

    /// The end: with trailers perhaps, or with an error. The first word on it counts.
    pub(crate) fn finish(&self, end: Result<Option<FieldsBuf>, BodyError>) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        let wakers = state.readers.take_all();
        drop(state);
        wake(wakers);
    }

    /// The whole body in one piece of exactly its size.
    pub(crate) fn collect(&self) -> Bytes {
        let state = self.state.lock();
        let mut whole = BytesMut::with_capacity(state.received as usize);
        for chunk in &state.chunks {
            whole.extend_from_slice(chunk);
        }
        whole.freeze()
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let charged = self.state.lock().charged;
        self.budget.give_back(charged);
    }
}

impl State {
    /// How much the slowest reader has taken; `None` without readers.
    fn slowest(&self) -> Option<u64> {
        self.readers
            .places()
            .map(|place| self.taken[place.index()])
            .min()
    }

    /// Lets go of what every reader has, once it need not be kept.
    fn release(&mut self) -> Option<Waker> {
        if self.keep || self.end.is_some() {
            return None;
        }
        let slowest = self.slowest().unwrap_or(self.received);
        let mut start = self.received - self.chunks.iter().map(|c| c.len() as u64).sum::<u64>();
        while let Some(chunk) = self.chunks.front() {
            start += chunk.len() as u64;
            if start > slowest {
                break;
            }
            self.chunks.pop_front();
            self.first += 1;
        }
        self.writer.take()
    }
}

/// One reader of a [`Fill`].
#[derive(Debug)]
pub struct FillReader {
    fill: Arc<Fill>,
    place: Place,
    next: usize,
    skip: u64,
    left: u64,
    ended: bool,
}

impl FillReader {
    /// Reads only the bytes from `first` to `last`, both included.
    #[must_use]
    pub fn slice(mut self, first: u64, last: u64) -> Self {
        self.skip = first;
        self.left = last.saturating_sub(first).saturating_add(1);
        self
    }

    /// The next frame, `None` at the end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        while !self.ended && self.left > 0 {
            let mut state = self.fill.state.lock();
            let at = self.next - state.first.min(self.next);
            let Some(chunk) = state.chunks.get(at).cloned() else {
                let Some(end) = state.end.clone() else {
                    state.readers.wait(self.place, cx.waker());
                    return Poll::Pending;
                };
                self.ended = true;
                return Poll::Ready(match end {
                    Ok(None) => None,
                    Ok(Some(trailers)) => Some(Ok(Frame::Trailers(trailers))),
                    Err(error) => Some(Err(error)),
                });
            };
            self.next += 1;
            state.taken[self.place.index()] += chunk.len() as u64;
            let writer = state.release();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            if let Some(chunk) = self.cut(chunk) {
                return Poll::Ready(Some(Ok(Frame::Data(chunk))));
            }
        }
        Poll::Ready(None)
    }

    /// The part of a chunk that lies in the slice.
    fn cut(&mut self, mut chunk: Bytes) -> Option<Bytes> {
        let skipped = self.skip.min(chunk.len() as u64);
        self.skip -= skipped;
        let mut chunk = chunk.split_off(skipped as usize);
        chunk.truncate(self.left.min(chunk.len() as u64) as usize);
        self.left -= chunk.len() as u64;
        (!chunk.is_empty()).then_some(chunk)
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.readers.leave(self.place);
        let writer = state.release();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(shuttle)))]
mod model;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn fill() -> Arc<Fill> {
        Fill::new(&Arc::new(Budget::new(1 << 20)))
    }

    async fn read(reader: &mut FillReader) -> Result<Vec<u8>, BodyError> {
        let mut all = Vec::new();
        while let Some(frame) = poll_fn(|cx| reader.poll_frame(cx)).await {
            if let Frame::Data(bytes) = frame? {
                all.extend_from_slice(&bytes);
            }
        }
        Ok(all)
    }

    #[tokio::test]
    async fn early_and_late_readers_get_the_same_bytes() {
        let fill = fill();
        let mut early = fill.reader().unwrap();
        fill.push("hello ".into(), 100);
        let first = poll_fn(|cx| early.poll_frame(cx)).await;
        assert!(matches!(first, Some(Ok(Frame::Data(bytes))) if bytes == "hello "));
        let mut late = fill.reader().unwrap();
        fill.push("world".into(), 100);
        fill.finish(Ok(None));
        assert_eq!(read(&mut early).await.unwrap(), b"world");
        assert_eq!(read(&mut late).await.unwrap(), b"hello world");
        assert_eq!(fill.collect(), "hello world");
    }

    #[tokio::test]
    async fn a_slice_spans_chunks() {
        let fill = fill();
        for chunk in ["abc", "def", "ghi"] {
            fill.push(chunk.into(), 100);
        }
        fill.finish(Ok(None));
        let mut part = fill.reader().unwrap().slice(2, 6);
        assert_eq!(read(&mut part).await.unwrap(), b"cdefg");
    }

    #[tokio::test]
    async fn over_the_limit_it_is_a_bounded_window() {
        let fill = fill();
        let mut reader = fill.reader().unwrap();
        let chunk = Bytes::from(vec![7; WINDOW as usize]);
        assert!(matches!(fill.push(chunk.clone(), 100), Pushed::Outgrown(all) if all.len() == 1));
        assert!(fill.reader().is_none(), "no reader can begin in the middle");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(fill.poll_ready(&mut cx).is_pending());
        assert!(matches!(
            reader.poll_frame(&mut cx),
            Poll::Ready(Some(Ok(Frame::Data(_))))
        ));
        assert!(matches!(fill.poll_ready(&mut cx), Poll::Ready(Ok(()))));
        drop(reader);
        assert!(matches!(
            fill.poll_ready(&mut cx),
            Poll::Ready(Err(Unwanted))
        ));
    }

    #[tokio::test]
    async fn the_budget_is_given_back() {
        let budget = Arc::new(Budget::new(10));
        let one = Fill::new(&budget);
        assert!(matches!(one.push("12345678".into(), 100), Pushed::Kept));
        let two = Fill::new(&budget);
        assert!(matches!(two.push("123".into(), 100), Pushed::Outgrown(_)));
        assert!(matches!(two.push("4".into(), 100), Pushed::Streamed));
        drop(one);
        let three = Fill::new(&budget);
        assert!(matches!(three.push("1234567890".into(), 100), Pushed::Kept));
    }

    #[tokio::test]
    async fn an_error_reaches_every_reader() {
        let fill = fill();
        let mut reader = fill.reader().unwrap();
        fill.push("some".into(), 100);
        fill.finish(Err(BodyError::Incomplete));
        assert_eq!(read(&mut reader).await, Err(BodyError::Incomplete));
    }
}
