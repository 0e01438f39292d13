//! From a thread's answers to the report: each thread counts alone, and hands over what it has at the end of every slice.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::outcome::{Fault, Outcome};
use super::report::{Progress, Slice};
use super::tally::{Answer, Tally};

/// Parts under way per thread. A reader that lags gets fewer and larger ones.
pub(crate) const PARTS_PER_THREAD: usize = 8;

/// What one thread saw in one slice.
#[derive(Debug)]
pub(crate) struct Part {
    thread: usize,
    slice: u64,
    tally: Tally,
    backlog: u64,
    /// When the last request that is in it was done.
    last: Option<Instant>,
}

/// When measuring begins, and into what it is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) begin: Instant,
    pub(crate) slice: Duration,
}

impl Clock {
    fn slice_at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begin);
        (since.as_nanos() / self.slice.as_nanos().max(1)) as u64
    }

    fn start_of(&self, slice: u64) -> Duration {
        Duration::from_nanos((self.slice.as_nanos() as u64).saturating_mul(slice))
    }
}

/// Counts for one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: usize,
    clock: Clock,
    slice: u64,
    slice_end: Instant,
    tally: Tally,
    last: Option<Instant>,
    out: SyncSender<Part>,
}

/// The moments of one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    /// When it was to start.
    pub(crate) start: Instant,
    pub(crate) first_byte: Instant,
    pub(crate) end: Instant,
}

impl Recorder {
    pub(crate) fn new(thread: usize, clock: Clock, out: SyncSender<Part>) -> Self {
        Self {
            thread,
            clock,
            slice: 0,
            slice_end: clock.begin + clock.slice,
            tally: Tally::default(),
            last: None,
            out,
        }
    }

    /// Whether a request that was to start then is in the report.
    pub(crate) fn counts(&self, start: Instant) -> bool {
        start >= self.clock.begin
    }

    pub(crate) fn answered(&mut self, status: u16, outcome: Outcome, moments: Moments) {
        if !self.counts(moments.start) {
            return;
        }
        self.last = Some(moments.end);
        self.tally.answered(&Answer {
            status,
            outcome,
            first_byte: moments.first_byte.saturating_duration_since(moments.start),
            total: moments.end.saturating_duration_since(moments.start),
        });
    }

    pub(crate) fn failed(&mut self, fault: Fault, start: Instant, now: Instant) {
        if self.counts(start) {
            self.last = Some(now);
            self.tally.failed(fault);
        }
    }

    pub(crate) fn connected(&mut self, start: Instant, after: Duration) {
        if self.counts(start) {
            self.tally.connected(after);
        }
    }

    pub(crate) fn received(&mut self, start: Instant, bytes: usize) {
        if self.counts(start) {
            self.tally.received(bytes);
        }
    }

    /// When [`Self::turn`] has something to do.
    pub(crate) fn slice_end(&self) -> Instant {
        self.slice_end
    }

    /// Hands over what belongs to a slice that has ended.
    pub(crate) fn turn(&mut self, now: Instant, backlog: u64) {
        if now < self.slice_end {
            return;
        }
        let part = self.part(backlog);
        if let Err(TrySendError::Full(part)) = self.out.try_send(part) {
            self.tally = part.tally;
        }
        self.slice = self.clock.slice_at(now);
        self.slice_end = self.clock.begin + self.clock.start_of(self.slice + 1);
    }

    /// Hands over what is left. The reader goes on until the recorder is gone, too.
    pub(crate) fn end(&mut self, backlog: u64) {
        let part = self.part(backlog);
        // Nobody is there any more only when the run has failed as a whole.
        let _ = self.out.send(part);
    }

    fn part(&mut self, backlog: u64) -> Part {
        Part {
            thread: self.thread,
            slice: self.slice,
            tally: std::mem::take(&mut self.tally),
            backlog,
            last: self.last,
        }
    }
}

/// All threads' parts, put together.
#[derive(Debug)]
pub(crate) struct Collector {
    clock: Clock,
    open: BTreeMap<u64, (Tally, u64)>,
    /// The slice each thread is in; all before it are complete.
    present: Vec<u64>,
    pub(crate) tally: Tally,
    pub(crate) time_line: Vec<Slice>,
    pub(crate) last: Option<Instant>,
}

impl Collector {
    pub(crate) fn new(clock: Clock, threads: usize) -> Self {
        Self {
            clock,
            open: BTreeMap::new(),
            present: vec![0; threads],
            tally: Tally::default(),
            time_line: Vec::new(),
            last: None,
        }
    }

    /// Takes what the threads hand over until the last of them has ended.
    pub(crate) fn collect(&mut self, parts: &Receiver<Part>, watch: &mut dyn FnMut(&Progress<'_>)) {
        for part in parts {
            self.add(&part);
            let complete = self.present.iter().copied().min().unwrap_or(0);
            self.close_before(complete, watch);
        }
        self.close_before(u64::MAX, watch);
    }

    fn add(&mut self, part: &Part) {
        let (tally, backlog) = self.open.entry(part.slice).or_default();
        tally.add(&part.tally);
        *backlog += part.backlog;
        if let Some(present) = self.present.get_mut(part.thread) {
            *present = part.slice + 1;
        }
        self.last = self.last.max(part.last);
    }

    fn close_before(&mut self, end: u64, watch: &mut dyn FnMut(&Progress<'_>)) {
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < end) {
            let (number, (tally, backlog)) = entry.remove_entry();
            let start = self.clock.start_of(number);
            let slice = Slice::new(start, self.clock.slice, &tally, backlog);
            self.tally.add(&tally);
            watch(&Progress {
                slice: &slice,
                tally: &self.tally,
                elapsed: start + self.clock.slice,
            });
            self.time_line.push(slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    const SLICE: Duration = Duration::from_millis(100);

    fn answer(recorder: &mut Recorder, start: Instant, millis: u64) {
        let end = start + Duration::from_millis(millis);
        let moments = Moments {
            start,
            first_byte: start,
            end,
        };
        recorder.answered(200, Outcome::Hit, moments);
    }

    #[test]
    fn slices_are_told_when_every_thread_has_left_them() {
        let begin = Instant::now();
        let clock = Clock {
            begin,
            slice: SLICE,
        };
        let (out, parts) = sync_channel(10);
        let mut one = Recorder::new(0, clock, out.clone());
        let mut two = Recorder::new(1, clock, out);
        answer(&mut one, begin, 5);
        answer(&mut two, begin, 10);
        one.turn(begin + SLICE / 2, 0);
        one.turn(begin + SLICE, 3);
        two.turn(begin + SLICE * 2, 4);
        answer(&mut one, begin + SLICE, 20);
        two.failed(Fault::Reset, begin + SLICE * 2, begin + SLICE * 2);
        one.end(0);
        two.end(0);
        drop((one, two));
        let mut collector = Collector::new(clock, 2);
        let mut told = Vec::new();
        collector.collect(&parts, &mut |progress| {
            told.push((progress.slice.answers(), progress.tally.answers()));
        });
        assert_eq!(told, [(2, 2), (1, 3), (0, 3)]);
        assert_eq!(collector.time_line[0].backlog, 7);
        assert_eq!(collector.time_line[2].faults, 1);
        assert_eq!(collector.time_line[2].start, SLICE * 2);
        assert_eq!(collector.last, Some(begin + SLICE * 2));
    }

    #[test]
    fn what_begins_while_warming_does_not_count() {
        let now = Instant::now();
        let clock = Clock {
            begin: now + SLICE,
            slice: SLICE,
        };
        let (out, parts) = sync_channel(10);
        let mut recorder = Recorder::new(0, clock, out);
        answer(&mut recorder, now, 500);
        recorder.failed(Fault::Reset, now, now);
        answer(&mut recorder, now + SLICE, 1);
        recorder.end(0);
        drop(recorder);
        let mut collector = Collector::new(clock, 1);
        collector.collect(&parts, &mut |_| ());
        assert_eq!(collector.tally.answers(), 1);
        assert_eq!(collector.tally.faults(), 0);
    }

    #[test]
    fn nothing_is_lost_when_the_reader_lags() {
        let begin = Instant::now();
        let clock = Clock {
            begin,
            slice: SLICE,
        };
        let (out, parts) = sync_channel(1);
        let mut recorder = Recorder::new(0, clock, out);
        for slice in 0..5 {
            answer(&mut recorder, begin + SLICE * slice, 1);
            recorder.turn(begin + SLICE * (slice + 1), 0);
        }
        let reader = std::thread::spawn(move || {
            let mut collector = Collector::new(clock, 1);
            collector.collect(&parts, &mut |_| ());
            collector.tally.answers()
        });
        recorder.end(0);
        drop(recorder);
        assert_eq!(reader.join().expect("it ends"), 5);
    }
}
