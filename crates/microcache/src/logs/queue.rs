//! The queue of lines to be written. Adding a line never waits for the disk: lines that do not fit are dropped,
//! and counted.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The size of the pieces in which lines are gathered.
const PIECE: usize = 64 * 1024;
/// The time that lines gather before the writer takes them.
const GATHER: Duration = Duration::from_millis(100);
/// The interval between two reports of dropped lines.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The queue of one writer, which takes all lines at a time.
pub(super) struct LineQueue {
    state: Mutex<State>,
    /// Wakes the writer.
    work: Condvar,
    /// The writer has ended.
    ended: Condvar,
    /// The maximum number of bytes, including those that the writer has taken and not written yet.
    bound: usize,
}

/// Whole lines, and their number.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

/// The work of the writer.
#[derive(Default)]
pub(super) struct Work {
    pub(super) pieces: VecDeque<Piece>,
    /// The file must be reopened.
    pub(super) reopen: bool,
    /// This is the last work.
    pub(super) last: bool,
}

/// The outcome of adding a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The line is queued.
    Taken,
    /// The line is dropped.
    Dropped,
    /// The line is dropped, and it is time to report this number of dropped lines.
    DroppedAndTell(u64),
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent")]
struct State {
    pieces: VecDeque<Piece>,
    /// Bytes in `pieces`.
    waiting: usize,
    /// Bytes that the writer has taken and not written yet.
    taken: usize,
    /// The number of bytes at which the writer is woken; `None` while it is busy.
    wake_at: Option<usize>,
    urgent: bool,
    reopen: bool,
    closing: bool,
    has_ended: bool,
    dropped: u64,
    /// Dropped lines not reported yet.
    unreported: u64,
    reported_at: Option<Instant>,
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

    /// Adds whole lines, with their ends. Urgent lines are not left to gather.
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

    /// Asks the writer to reopen its file.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.work.notify_one();
    }

    /// Waits for work, lets lines gather, and takes all of them.
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

    /// Waits for a time or for a wakeup. Returns whether to reopen the file, and whether to end.
    pub(super) fn pause(&self, pause: Duration) -> (bool, bool) {
        let mut state = self.state.lock();
        let until = Instant::now() + pause;
        while !state.is_called() && !self.work.wait_until(&mut state, until).timed_out() {}
        (mem::take(&mut state.reopen), state.closing)
    }

    /// Records the number of bytes written.
    pub(super) fn written(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_sub(bytes);
    }

    /// Records the number of lines lost by the writer.
    pub(super) fn lost(&self, lines: u64) {
        self.state.lock().dropped += lines;
    }

    /// Returns the number of dropped lines since the last report, if it is time for one.
    pub(super) fn unreported(&self) -> Option<u64> {
        let mut state = self.state.lock();
        (state.unreported > 0)
            .then(|| state.take_report())
            .flatten()
    }

    /// The writer has ended.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.ended.notify_all();
    }

    /// Asks the writer to write everything, and waits for it up to a limit. Returns the number of lines not written
    /// in total.
    pub(super) fn close(&self, time_limit: Duration) -> u64 {
        let mut state = self.state.lock();
        state.closing = true;
        self.work.notify_one();
        let until = Instant::now() + time_limit;
        while !state.has_ended && !self.ended.wait_until(&mut state, until).timed_out() {}
        state.dropped + state.pieces.iter().map(|piece| piece.lines).sum::<u64>()
    }
}

impl State {
    /// Wakes the writer, with or without lines.
    const fn is_called(&self) -> bool {
        self.reopen || self.closing
    }

    /// Returns a piece with room for a number of bytes.
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
        self.unreported += lines;
        self.take_report()
            .map_or(Pushed::Dropped, Pushed::DroppedAndTell)
    }

    /// Returns the number of unreported dropped lines and resets it, if the interval between reports is over.
    fn take_report(&mut self) -> Option<u64> {
        let now = Instant::now();
        let is_time = self.reported_at.is_none_or(|last| now - last >= TELL_EVERY);
        is_time.then(|| {
            self.reported_at = Some(now);
            mem::take(&mut self.unreported)
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
    fn lines_that_do_not_fit_are_dropped_and_counted_until_there_is_room() {
        let queue = LineQueue::new(10);
        assert_eq!(queue.push(b"12345\n", 1, false), Pushed::Taken);
        assert_eq!(
            queue.push(b"12345\n", 1, false),
            Pushed::DroppedAndTell(1),
            "the first is reported at once"
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
