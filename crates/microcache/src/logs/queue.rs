//! Lines that wait to be written. Who brings one never waits for the disk: what does not fit is
//! dropped, and counted.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Lines are gathered in pieces of this size.
const PIECE: usize = 64 * 1024;
/// How long the writer lets lines gather before it takes them.
const GATHER: Duration = Duration::from_millis(100);
/// The time between two words about lines that were dropped.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Lines on their way to one writer, which takes all of them at a time.
pub(super) struct LineQueue {
    state: Mutex<State>,
    /// There is something for the writer to do.
    work: Condvar,
    /// The writer has ended.
    ended: Condvar,
    /// What may wait, together with what the writer has taken and not written yet.
    bound: usize,
}

/// Whole lines, and how many.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

/// What the writer has to do.
#[derive(Default)]
pub(super) struct Work {
    pub(super) pieces: VecDeque<Piece>,
    /// Its file is to be opened anew.
    pub(super) reopen: bool,
    /// Nothing comes after this.
    pub(super) last: bool,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits to be written.
    Taken,
    /// It is dropped.
    Dropped,
    /// It is dropped, and so many were since that was said.
    DroppedAndTell(u64),
}

#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that the writer is told, or says"
)]
struct State {
    pieces: VecDeque<Piece>,
    /// Bytes in them.
    waiting: usize,
    /// Bytes that the writer has taken and not written yet.
    taken: usize,
    /// The writer is woken when so much waits; `None` while it has something to do.
    wake_at: Option<usize>,
    urgent: bool,
    reopen: bool,
    closing: bool,
    has_ended: bool,
    dropped: u64,
    /// Those of them that nobody was told of.
    untold: u64,
    told_at: Option<Instant>,
}

impl LineQueue {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
            bound,
        }
    }

    /// Brings lines, whole and with their ends. What is urgent is not left to gather.
    pub(super) fn push(&self, bytes: &[u8], lines: u64, urgent: bool) -> Pushed {
        let mut state = self.state.lock();
        if state.has_ended || state.waiting + state.taken + bytes.len() > self.bound {
            return state.drop_lines(lines);
        }
        state.waiting += bytes.len();
        state.last_piece(bytes.len()).add(bytes, lines);
        state.urgent |= urgent;
        let is_due = |enough| urgent || state.waiting >= enough;
        if state.wake_at.is_some_and(is_due) {
            state.wake_at = None;
            drop(state);
            self.work.notify_one();
        }
        Pushed::Taken
    }

    /// Has the writer open its file anew.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.work.notify_one();
    }

    /// Waits until there is something to do, lets some more come, and takes it all.
    pub(super) fn take(&self) -> Work {
        let mut state = self.state.lock();
        let mut until = None;
        while !state.is_called() && !state.urgent && state.waiting < self.bound / 4 {
            if state.waiting == 0 {
                state.wake_at = Some(1);
                self.work.wait(&mut state);
            } else {
                state.wake_at = Some(self.bound / 4);
                let until = *until.get_or_insert_with(|| Instant::now() + GATHER);
                if self.work.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
        }
        state.wake_at = None;
        state.urgent = false;
        state.taken += state.waiting;
        state.waiting = 0;
        Work {
            pieces: mem::take(&mut state.pieces),
            reopen: mem::take(&mut state.reopen),
            last: state.closing,
        }
    }

    /// Waits for a while, or until the writer is called. Says whether it is to open its file anew,
    /// and whether it is to end.
    pub(super) fn pause(&self, pause: Duration) -> (bool, bool) {
        let mut state = self.state.lock();
        let until = Instant::now() + pause;
        while !state.is_called() && !self.work.wait_until(&mut state, until).timed_out() {}
        (mem::take(&mut state.reopen), state.closing)
    }

    /// So many bytes that were taken are written.
    pub(super) fn written(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_sub(bytes);
    }

    /// So many lines that were taken will never be written.
    pub(super) fn lost(&self, lines: u64) {
        self.state.lock().dropped += lines;
    }

    /// How many lines were dropped since that was said, if it is time to say it.
    pub(super) fn untold(&self) -> Option<u64> {
        let mut state = self.state.lock();
        (state.untold > 0).then(|| state.tell()).flatten()
    }

    /// The writer has ended.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Has the writer write what there is, and waits for that, but not for ever. Says how many lines
    /// were not written in all.
    pub(super) fn close(&self, patience: Duration) -> u64 {
        let mut state = self.state.lock();
        state.closing = true;
        self.work.notify_one();
        let until = Instant::now() + patience;
        while !state.has_ended && !self.ended.wait_until(&mut state, until).timed_out() {}
        state.dropped + state.pieces.iter().map(|piece| piece.lines).sum::<u64>()
    }
}

impl State {
    /// The writer is called, whether lines wait or not.
    const fn is_called(&self) -> bool {
        self.reopen || self.closing
    }

    /// A piece with room for so many bytes more.
    fn last_piece(&mut self, room: usize) -> &mut Piece {
        let has_room = |piece: &Piece| piece.bytes.len() + room <= piece.bytes.capacity();
        if !self.pieces.back().is_some_and(has_room) {
            self.pieces.push_back(Piece {
                bytes: Vec::with_capacity(room.max(PIECE)),
                lines: 0,
            });
        }
        let last = self.pieces.len() - 1;
        &mut self.pieces[last]
    }

    fn drop_lines(&mut self, lines: u64) -> Pushed {
        self.dropped += lines;
        self.untold += lines;
        self.tell().map_or(Pushed::Dropped, Pushed::DroppedAndTell)
    }

    fn tell(&mut self) -> Option<u64> {
        let now = Instant::now();
        let is_time = self.told_at.is_none_or(|told| now - told >= TELL_EVERY);
        is_time.then(|| {
            self.told_at = Some(now);
            mem::take(&mut self.untold)
        })
    }
}

impl Piece {
    fn add(&mut self, bytes: &[u8], lines: u64) {
        self.bytes.extend_from_slice(bytes);
        self.lines += lines;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_what_is_written_makes_room() {
        let queue = LineQueue::new(10);
        assert_eq!(queue.push(b"12345\n", 1, false), Pushed::Taken);
        assert_eq!(
            queue.push(b"12345\n", 1, false),
            Pushed::DroppedAndTell(1),
            "the first is told at once"
        );
        assert_eq!(queue.push(b"12345\n", 1, false), Pushed::Dropped);
        assert_eq!(queue.push(b"123\n", 1, false), Pushed::Taken);
        queue.reopen();
        let work = queue.take();
        assert!(work.reopen && !work.last);
        let lines: u64 = work.pieces.iter().map(|piece| piece.lines).sum();
        assert_eq!(lines, 2);
        assert_eq!(
            queue.push(b"1\n", 1, false),
            Pushed::Dropped,
            "what is taken still counts"
        );
        queue.written(6);
        assert_eq!(queue.push(b"12345\n", 1, false), Pushed::Taken);
        assert_eq!(
            queue.close(Duration::ZERO),
            4,
            "three dropped, one never taken"
        );
        assert!(queue.take().last);
    }

    #[test]
    fn pieces_hold_whole_lines_in_their_order() {
        let queue = LineQueue::new(1 << 20);
        let mut expected = Vec::new();
        for number in 0..20_000 {
            let line = format!("line {number}\n");
            expected.extend_from_slice(line.as_bytes());
            assert_eq!(queue.push(line.as_bytes(), 1, false), Pushed::Taken);
        }
        let long = vec![b'x'; PIECE * 2];
        assert_eq!(queue.push(&long, 1, false), Pushed::Taken);
        expected.extend_from_slice(&long);
        queue.reopen();
        let work = queue.take();
        assert!(work.pieces.len() > 2);
        let mut all = Vec::new();
        for piece in work.pieces {
            let ends = memchr::memchr_iter(b'\n', &piece.bytes).count() as u64;
            assert!(piece.lines == ends || piece.bytes == long);
            all.extend(piece.bytes);
        }
        assert!(all == expected);
    }
}
