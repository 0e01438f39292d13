//! A response body being fetched, read by clients and stored at the same time.
//!
//! While it may be stored, every chunk is kept, late readers start at the beginning, and the origin
//! is read as fast as it sends. Once it may not (it exceeds the object limit, or takes too long to
//! arrive), chunks are kept until all readers have them, no reader is added, and the slowest reader
//! sets the pace until it has held up the others for too long.

mod budget;
mod charge;
pub mod pace;
mod pump;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use microcache_policy::FieldsBuf;
use microcache_store::Stored;
use smallvec::SmallVec;
use tokio::time::Instant;

pub(crate) use budget::FillBudget;
use charge::FillCharge;
use pace::{FREE, PROGRESS};
pub(crate) use pump::FillPump;

use crate::body::frame::{BodyError, Frame};
use crate::sync::{Mutex, WakerSlot, Wakers, wake};

/// The lead, in bytes, that the fastest reader of an unstorable body may have over the slowest.
const WINDOW: u64 = 1024 * 1024;
/// The overhead of a chunk in bytes.
const CHUNK_COST: u64 = 64;
/// The time without a read after which a reader has stalled, and is dropped first when buffered
/// bytes have to be reduced.
const STALLED: Duration = Duration::from_millis(500);

/// A body being fetched.
#[derive(Debug)]
pub(crate) struct Fill {
    state: Mutex<FillState>,
    budget: Arc<FillBudget>,
}

#[derive(Debug)]
struct FillState {
    chunks: VecDeque<Bytes>,
    /// The number of the first chunk still buffered.
    first: usize,
    /// The bytes of the chunks before it.
    bytes_before: u64,
    received: u64,
    /// The memory of the chunks in bytes.
    buffered: u64,
    /// Every chunk is kept, so that the body can be stored and joined.
    keep: bool,
    /// The parts no longer buffered went to a tier.
    in_tier: bool,
    end: Option<Result<Option<FieldsBuf>, BodyError>>,
    wakers: Wakers,
    /// The readers, by slot.
    readers: Vec<ReaderState>,
    /// The task that waits in [`Fill::poll_ready`].
    writer: Option<Waker>,
    charge: FillCharge,
    /// Registered with the budget, which drops stalled readers.
    watched: bool,
}

/// The progress of one reader.
#[derive(Clone, Copy, Debug, Default)]
struct ReaderState {
    /// Bytes read and released.
    taken: u64,
    /// Bytes it had read when others began to wait for it.
    mark: u64,
    /// Dropped for being too slow.
    is_dropped: bool,
    /// Bytes it had read at the last check of its pace, and the time of that check.
    paced: u64,
    paced_at: Option<Instant>,
}

impl ReaderState {
    fn new() -> Self {
        Self {
            paced_at: Some(Instant::now()),
            ..Self::default()
        }
    }

    /// The time since which it has read nothing; `None` if it has not stalled.
    fn stalled_since(&mut self, now: Instant) -> Option<Instant> {
        let since = self.paced_at?;
        if self.taken > self.paced {
            (self.paced, self.paced_at) = (self.taken, Some(now));
            return None;
        }
        (now.duration_since(since) >= STALLED).then_some(since)
    }
}

/// The fate of a chunk.
#[derive(Debug)]
pub(crate) enum PushResult {
    /// It is kept, with all chunks before it.
    Kept,
    /// It is the first that is not kept. All chunks so far, including this one.
    Outgrown(Vec<Bytes>),
    /// It is kept until the readers have it.
    Streamed,
}

/// The body has no readers left and will not be stored.
#[derive(Debug)]
pub(crate) struct Unwanted;

impl Fill {
    /// A body that may be stored.
    pub(crate) fn new(budget: &Arc<FillBudget>) -> Arc<Self> {
        let state = FillState {
            chunks: VecDeque::new(),
            first: 0,
            bytes_before: 0,
            received: 0,
            buffered: 0,
            keep: true,
            in_tier: false,
            end: None,
            wakers: Wakers::default(),
            readers: Vec::new(),
            writer: None,
            charge: FillCharge::Arriving(0),
            watched: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            budget: Arc::clone(budget),
        })
    }

    /// Adds a reader at the beginning. `None` if the beginning is gone or the end is known to be
    /// missing: every reader gets the complete body.
    pub(crate) fn reader(self: &Arc<Self>) -> Option<FillReader> {
        let mut state = self.state.lock();
        let whole = matches!(state.end, Some(Ok(_)));
        let arriving = state.end.is_none() && state.keep;
        if state.first > 0 || !(whole || arriving) {
            return None;
        }
        let place = state.wakers.take_slot();
        if state.readers.len() <= place.index() {
            state
                .readers
                .resize(place.index() + 1, ReaderState::default());
        }
        state.readers[place.index()] = ReaderState::new();
        Some(FillReader {
            fill: Arc::clone(self),
            place,
            next: 0,
            held: 0,
            skip: 0,
            left: u64::MAX,
            ended: false,
        })
    }

    /// Returns true if the body is complete and was kept: chunks no longer here were stored, or are
    /// about to be.
    pub(crate) fn is_whole(&self) -> bool {
        let state = self.state.lock();
        (state.keep || state.in_tier) && matches!(state.end, Some(Ok(_)))
    }

    /// Waits until another chunk is needed.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Unwanted>> {
        let mut state = self.state.lock();
        if state.keep {
            return Poll::Ready(Ok(()));
        }
        let Some(slowest) = state.slowest() else {
            return Poll::Ready(Err(Unwanted));
        };
        let ahead = state.received - slowest;
        if ahead < FREE || ahead < WINDOW && self.budget.has_room() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Adds a chunk. The body is no longer kept once it exceeds `limit` or the budget for bodies
    /// under way is exhausted.
    pub(crate) fn push(self: &Arc<Self>, chunk: Bytes, limit: u64) -> PushResult {
        let mut state = self.state.lock();
        let was_kept = state.keep;
        state.received += chunk.len() as u64;
        state.buffered += chunk.len() as u64 + CHUNK_COST;
        state.chunks.push_back(chunk);
        if was_kept {
            let bytes = state.beyond_free();
            state.keep = state.received <= limit && self.budget.grow(&mut state.charge, bytes);
        }
        let pushed = match (was_kept, state.keep) {
            (true, true) => PushResult::Kept,
            (true, false) => PushResult::Outgrown(state.chunks.iter().cloned().collect()),
            (false, _) => PushResult::Streamed,
        };
        let writer = self.release(&mut state);
        let wakers = state.wakers.take_all();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        wake(wakers);
        if matches!(pushed, PushResult::Outgrown(_)) {
            self.budget.shed();
        }
        pushed
    }

    /// Ends the body, with trailers or an error. Only the first call counts.
    pub(crate) fn finish(self: &Arc<Self>, end: Result<Option<FieldsBuf>, BodyError>) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(end);
        let writer = self.release(&mut state);
        let wakers = state.wakers.take_all();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        wake(wakers);
        self.budget.shed();
    }

    /// Ends a body that was stored in a tier instead.
    pub(crate) fn finish_in_tier(self: &Arc<Self>, end: Result<Option<FieldsBuf>, BodyError>) {
        self.state.lock().in_tier = true;
        self.finish(end);
    }

    /// The complete body. One that came in a single small chunk is that chunk, which the store
    /// copies next to the head; otherwise it is one allocation of exactly its size.
    pub(crate) fn collect(&self) -> Bytes {
        // The readers do not wait for the copy.
        let chunks: SmallVec<[Bytes; 4]> = self.state.lock().chunks.iter().cloned().collect();
        if let [whole] = &chunks[..]
            && whole.len() <= Stored::COMPACT
        {
            return whole.clone();
        }
        let length = chunks.iter().map(Bytes::len).sum();
        let mut whole = BytesMut::with_capacity(length);
        for chunk in &chunks {
            whole.extend_from_slice(chunk);
        }
        whole.freeze()
    }

    /// Marks the position of every reader, as others begin to wait for the slowest.
    pub(crate) fn mark(&self) {
        for reader in &mut self.state.lock().readers {
            reader.mark = reader.taken;
        }
    }

    /// Drops the readers that have read too little since the mark, if another reader has read
    /// everything: the body has waited for them for the allowed time.
    pub(crate) fn release_slow_readers(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let received = state.received;
        let places: Vec<_> = state.wakers.places().map(WakerSlot::index).collect();
        let waits = |at: &usize| state.readers[*at].taken == received;
        if places.iter().any(waits) {
            for at in places {
                let reader = &mut state.readers[at];
                let is_behind = received - reader.taken >= FREE;
                reader.is_dropped |= is_behind && reader.taken - reader.mark < PROGRESS;
            }
        }
        let writer = self.release(&mut state);
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }

    /// The stalled readers for which chunks are kept that are not stored.
    fn stalled(self: &Arc<Self>) -> Vec<Laggard> {
        let mut state = self.state.lock();
        if state.holds_all() {
            return Vec::new();
        }
        let (now, received) = (Instant::now(), state.received);
        let places: Vec<_> = state.wakers.places().map(WakerSlot::index).collect();
        let mut stalled = Vec::new();
        for at in places {
            let reader = &mut state.readers[at];
            let is_behind = !reader.is_dropped && received - reader.taken >= FREE;
            if let Some(since) = reader.stalled_since(now).filter(|_| is_behind) {
                let fill = Arc::clone(self);
                stalled.push(Laggard { since, fill, at });
            }
        }
        stalled
    }

    /// Releases the chunks that every reader has, once they need not be kept.
    fn release(self: &Arc<Self>, state: &mut FillState) -> Option<Waker> {
        if state.holds_all() {
            return None;
        }
        let slowest = state.slowest().unwrap_or(state.received);
        while let Some(chunk) = state.chunks.front() {
            let length = chunk.len() as u64;
            if state.bytes_before + length > slowest {
                break;
            }
            state.chunks.pop_front();
            state.first += 1;
            state.bytes_before += length;
            state.buffered -= length + CHUNK_COST;
        }
        let bytes = state.beyond_free();
        self.budget.set_behind(&mut state.charge, bytes);
        if bytes > 0 && !std::mem::replace(&mut state.watched, true) {
            self.budget.watch(Arc::downgrade(self));
        }
        state.writer.take()
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.budget.give_back(&mut self.state.lock().charge);
    }
}

impl FillState {
    /// Returns true while no chunk may be released, so that new readers can start at the beginning.
    fn holds_all(&self) -> bool {
        match self.end {
            None => self.keep,
            Some(Ok(_)) => self.keep && self.buffered <= FREE,
            Some(Err(_)) => false,
        }
    }

    /// Bytes read by the slowest reader; `None` without readers.
    fn slowest(&self) -> Option<u64> {
        let readers = self
            .wakers
            .places()
            .map(|place| &self.readers[place.index()]);
        readers
            .filter(|reader| !reader.is_dropped)
            .map(|reader| reader.taken)
            .min()
    }

    const fn beyond_free(&self) -> u64 {
        self.buffered.saturating_sub(FREE)
    }
}

/// A stalled reader.
struct Laggard {
    since: Instant,
    fill: Arc<Fill>,
    at: usize,
}

impl Laggard {
    /// Drops the reader, unless it has read on meanwhile.
    fn release(&self) {
        let mut state = self.fill.state.lock();
        let reader = &mut state.readers[self.at];
        reader.is_dropped |= reader.paced_at == Some(self.since);
        let writer = self.fill.release(&mut state);
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

/// One reader of a [`Fill`].
#[derive(Debug)]
pub struct FillReader {
    fill: Arc<Fill>,
    place: WakerSlot,
    next: usize,
    /// Bytes handed out last. They count as read once more is requested.
    held: u64,
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
        while !self.ended {
            match self.step(cx) {
                Poll::Ready(Some(Ok(Frame::Data(chunk)))) => {
                    if let Some(chunk) = self.cut(chunk) {
                        return Poll::Ready(Some(Ok(Frame::Data(chunk))));
                    }
                }
                Poll::Pending => return Poll::Pending,
                end @ Poll::Ready(_) => {
                    self.ended = true;
                    return end;
                }
            }
        }
        Poll::Ready(None)
    }

    /// Releases the chunk handed out last, and takes the next one or the end.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let mut state = self.fill.state.lock();
        let reader = &mut state.readers[self.place.index()];
        if reader.is_dropped {
            return Poll::Ready(Some(Err(BodyError::TooSlow)));
        }
        let mut writer = None;
        if self.held > 0 || self.left == 0 {
            reader.taken += std::mem::take(&mut self.held);
            // A reader that has its range needs nothing more.
            reader.is_dropped = self.left == 0;
            writer = self.fill.release(&mut state);
        }
        let next = state.chunks.get(self.next.saturating_sub(state.first));
        let frame = match (next, &state.end) {
            _ if self.left == 0 => Poll::Ready(None),
            (Some(chunk), _) => {
                self.next += 1;
                self.held = chunk.len() as u64;
                Poll::Ready(Some(Ok(Frame::Data(chunk.clone()))))
            }
            (None, Some(end)) => Poll::Ready(match end {
                Ok(None) => None,
                Ok(Some(trailers)) => Some(Ok(Frame::Trailers(trailers.clone()))),
                Err(error) => Some(Err(error.clone())),
            }),
            (None, None) => {
                state.wakers.wait(self.place, cx.waker());
                Poll::Pending
            }
        };
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        frame
    }

    /// The part of a chunk within the range.
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
        state.wakers.leave(self.place);
        let writer = self.fill.release(&mut state);
        drop(state);
        writer.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(shuttle)))]
mod model;

#[cfg(all(test, not(shuttle)))]
mod tests;
