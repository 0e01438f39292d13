//! Per-thread recording, and its aggregation: each thread counts on its own and sends a part at the end of
//! every slice.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::outcome::{CacheOutcome, RequestFault};
use super::report::{LoadProgress, Slice};
use super::tally::{RecordedResponse, Tally};

/// Channel capacity per thread. A collector that lags gets fewer, larger parts.
pub(crate) const PARTS_PER_THREAD: usize = 8;

/// Counts of one thread in one slice.
#[derive(Debug)]
pub(crate) struct ThreadSlice {
    thread: usize,
    slice: u64,
    tally: Tally,
    backlog: u64,
    /// Completion of the last recorded request.
    last: Option<Instant>,
}

/// Start of measuring, and length of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceClock {
    pub(crate) begin: Instant,
    pub(crate) slice: Duration,
}

impl SliceClock {
    fn slice_at(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begin);
        (since.as_nanos() / self.slice.as_nanos().max(1)) as u64
    }

    fn start_of(&self, slice: u64) -> Duration {
        Duration::from_nanos((self.slice.as_nanos() as u64).saturating_mul(slice))
    }
}

/// Recorder of one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: usize,
    clock: SliceClock,
    slice: u64,
    slice_end: Instant,
    tally: Tally,
    last: Option<Instant>,
    out: SyncSender<ThreadSlice>,
}

/// Timestamps of one response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseTimes {
    /// Scheduled start, not the actual one.
    pub(crate) start: Instant,
    pub(crate) first_byte: Instant,
    pub(crate) end: Instant,
}

impl Recorder {
    pub(crate) fn new(thread: usize, clock: SliceClock, out: SyncSender<ThreadSlice>) -> Self {
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

    /// Returns whether a request scheduled for `start` is part of the report.
    pub(crate) fn counts(&self, start: Instant) -> bool {
        start >= self.clock.begin
    }

    pub(crate) fn answered(&mut self, status: u16, outcome: CacheOutcome, moments: ResponseTimes) {
        if !self.counts(moments.start) {
            return;
        }
        self.last = Some(moments.end);
        self.tally.answered(&RecordedResponse {
            status,
            outcome,
            first_byte: moments.first_byte.saturating_duration_since(moments.start),
            total: moments.end.saturating_duration_since(moments.start),
        });
    }

    pub(crate) fn failed(&mut self, fault: RequestFault, start: Instant, now: Instant) {
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

    /// End of the current slice, when [`Self::turn`] is due.
    pub(crate) fn slice_end(&self) -> Instant {
        self.slice_end
    }

    /// Sends the part of a slice that has ended, and starts the next one.
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

    /// Sends the last part. The collector stops when all recorders are dropped.
    pub(crate) fn end(&mut self, backlog: u64) {
        let part = self.part(backlog);
        // The receiver is gone only if the run as a whole has failed.
        let _ = self.out.send(part);
    }

    fn part(&mut self, backlog: u64) -> ThreadSlice {
        ThreadSlice {
            thread: self.thread,
            slice: self.slice,
            tally: std::mem::take(&mut self.tally),
            backlog,
            last: self.last,
        }
    }
}

/// Aggregation of all threads' parts.
#[derive(Debug)]
pub(crate) struct Collector {
    clock: SliceClock,
    open: BTreeMap<u64, (Tally, u64)>,
    /// Current slice of each thread; earlier ones are complete.
    present: Vec<u64>,
    pub(crate) tally: Tally,
    pub(crate) time_line: Vec<Slice>,
    pub(crate) last: Option<Instant>,
}

impl Collector {
    pub(crate) fn new(clock: SliceClock, threads: usize) -> Self {
        Self {
            clock,
            open: BTreeMap::new(),
            present: vec![0; threads],
            tally: Tally::default(),
            time_line: Vec::new(),
            last: None,
        }
    }

    /// Receives parts until every recorder is dropped, calling `watch` for each complete slice.
    pub(crate) fn collect(
        &mut self,
        parts: &Receiver<ThreadSlice>,
        watch: &mut dyn FnMut(&LoadProgress<'_>),
    ) {
        for part in parts {
            self.add(&part);
            let complete = self.present.iter().copied().min().unwrap_or(0);
            self.close_before(complete, watch);
        }
        self.close_before(u64::MAX, watch);
    }

    fn add(&mut self, part: &ThreadSlice) {
        let (tally, backlog) = self.open.entry(part.slice).or_default();
        tally.add(&part.tally);
        *backlog += part.backlog;
        if let Some(present) = self.present.get_mut(part.thread) {
            *present = part.slice + 1;
        }
        self.last = self.last.max(part.last);
    }

    fn close_before(&mut self, end: u64, watch: &mut dyn FnMut(&LoadProgress<'_>)) {
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < end) {
            let (number, (tally, backlog)) = entry.remove_entry();
            let start = self.clock.start_of(number);
            let slice = Slice::new(start, self.clock.slice, &tally, backlog);
            self.tally.add(&tally);
            watch(&LoadProgress {
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
        let moments = ResponseTimes {
            start,
            first_byte: start,
            end,
        };
        recorder.answered(200, CacheOutcome::Hit, moments);
    }

    #[test]
    fn slices_are_reported_when_every_thread_has_left_them() {
        let begin = Instant::now();
        let clock = SliceClock {
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
        two.failed(RequestFault::Reset, begin + SLICE * 2, begin + SLICE * 2);
        one.end(0);
        two.end(0);
        drop((one, two));
        let mut collector = Collector::new(clock, 2);
        let mut reports = Vec::new();
        collector.collect(&parts, &mut |progress| {
            reports.push((progress.slice.answers(), progress.tally.answers()));
        });
        assert_eq!(reports, [(2, 2), (1, 3), (0, 3)]);
        assert_eq!(collector.time_line[0].backlog, 7);
        assert_eq!(collector.time_line[2].faults, 1);
        assert_eq!(collector.time_line[2].start, SLICE * 2);
        assert_eq!(collector.last, Some(begin + SLICE * 2));
    }

    #[test]
    fn requests_begun_during_warmup_do_not_count() {
        let now = Instant::now();
        let clock = SliceClock {
            begin: now + SLICE,
            slice: SLICE,
        };
        let (out, parts) = sync_channel(10);
        let mut recorder = Recorder::new(0, clock, out);
        answer(&mut recorder, now, 500);
        recorder.failed(RequestFault::Reset, now, now);
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
        let clock = SliceClock {
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
