//! The thread that writes one log. Only it waits for a slow disk or the reader of a pipe.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use microcache_proxy::config::LogPlace;

use super::queue::{LineQueue, Piece, Pushed};
use super::sink::Sink;
use crate::count::count;

/// The time between two attempts to write when writing fails.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// The time between two attempts on a non-blocking stream.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The interval of checks for a moved file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A log. Clones write to the same one.
#[derive(Clone)]
pub(super) struct Writer {
    place: Arc<LogPlace>,
    queue: Arc<LineQueue>,
}

impl Writer {
    /// Opens the destination, and starts the thread.
    pub(super) fn start(place: &LogPlace, bound: usize) -> io::Result<Self> {
        let sink = Sink::open(place)?;
        let queue = Arc::new(LineQueue::new(bound));
        let place = Arc::new(place.clone());
        let mut writing = WriterThread {
            place: Arc::clone(&place),
            queue: Arc::clone(&queue),
            sink,
            unwritten: VecDeque::new(),
            begun: 0,
            trouble: None,
            looked_at: Instant::now(),
        };
        writing.end_broken_line();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writing.run())?;
        Ok(Self { place, queue })
    }

    pub(super) fn place(&self) -> &LogPlace {
        &self.place
    }

    /// Queues a line, with its end, without waiting for it to be written.
    pub(super) fn push(&self, line: &[u8]) {
        self.push_lines(line, 1, false);
    }

    /// Queues urgent lines, which do not wait for others to gather.
    pub(super) fn push_lines(&self, bytes: &[u8], lines: u64, urgent: bool) {
        if let Pushed::DroppedAndTell(dropped) = self.queue.push(bytes, lines, urgent) {
            tell_dropped(&self.place, dropped);
        }
    }

    /// Reopens the file.
    pub(super) fn reopen(&self) {
        self.queue.reopen();
    }

    /// Writes all lines within a time. Returns the number of lines not written in total.
    pub(super) fn finish(&self, time_limit: Duration) -> u64 {
        self.queue.close(time_limit)
    }
}

fn tell_dropped(place: &LogPlace, dropped: u64) {
    tracing::warn!(
        kind = "log-dropped",
        about = %place,
        dropped,
        "log: {place} is too slow: {} dropped",
        count(dropped, "line")
    );
}

struct WriterThread {
    place: Arc<LogPlace>,
    queue: Arc<LineQueue>,
    sink: Sink,
    unwritten: VecDeque<Piece>,
    /// The number of bytes of the first piece already written.
    begun: usize,
    /// The error of writing, as last reported.
    trouble: Option<io::ErrorKind>,
    looked_at: Instant,
}

impl WriterThread {
    fn run(mut self) {
        loop {
            let work = self.queue.take();
            self.unwritten.extend(work.pieces);
            if work.reopen {
                self.reopen();
            } else if self.looked_at.elapsed() >= LOOK_EVERY {
                self.follow();
            }
            self.write_all(work.last);
            if work.last {
                break;
            }
            if let Some(dropped) = self.queue.unreported() {
                tell_dropped(&self.place, dropped);
            }
        }
        self.queue
            .lost(self.unwritten.iter().map(|p| p.lines).sum());
        self.queue.end();
    }

    /// Writes everything, with as many attempts as needed; new lines wait in the queue as far as there is room. At
    /// the end, it makes one more attempt.
    fn write_all(&mut self, mut is_last: bool) {
        while let Some(piece) = self.unwritten.front() {
            let error = match self.sink.write(&piece.bytes[self.begun..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    self.wrote(written);
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Another process has made the stream non-blocking.
                io::ErrorKind::WouldBlock => thread::sleep(LOOK_AGAIN),
                _ if is_last => return self.tell(&error),
                _ => {
                    self.tell(&error);
                    is_last = self.wait();
                }
            }
        }
    }

    fn wrote(&mut self, written: usize) {
        self.begun += written;
        if let Some(piece) = self.unwritten.front()
            && self.begun >= piece.bytes.len()
        {
            self.queue.written(piece.bytes.len());
            self.unwritten.pop_front();
            self.begun = 0;
            if self.trouble.take().is_some() {
                let place = &self.place;
                tracing::info!(kind = "log-written", about = %place, "log: writing to {place} works again");
            }
        }
    }

    /// Reports an error of writing, if it is new.
    fn tell(&mut self, error: &io::Error) {
        if self.trouble.replace(error.kind()) != Some(error.kind()) {
            let place = &self.place;
            tracing::error!(
                kind = "log-write",
                about = %place,
                "log: cannot write to {place}: {error}; lines are dropped when `log_buffer` is full"
            );
        }
    }

    /// Waits before the next attempt. Returns whether that is the last one.
    fn wait(&mut self) -> bool {
        let (reopen, closing) = self.queue.pause(TRY_AGAIN);
        if reopen {
            self.reopen();
        } else {
            self.follow();
        }
        closing
    }

    /// Reopens the file if it was moved.
    fn follow(&mut self) {
        self.looked_at = Instant::now();
        if self.sink.was_moved() {
            self.reopen();
        }
    }

    fn reopen(&mut self) {
        let place = Arc::clone(&self.place);
        match self.sink.reopen() {
            Ok(()) => {
                self.begin_line_again();
                self.end_broken_line();
                tracing::info!(kind = "log-opened", about = %place, "log: {place} reopened");
            }
            Err(error) => tracing::error!(
                kind = "log-open",
                about = %place,
                "log: cannot reopen {place}: {error}; the old file stays in use"
            ),
        }
    }

    /// Completes a partial line at the end of the file.
    fn end_broken_line(&mut self) {
        if self.sink.is_within_a_line() {
            self.unwritten.push_front(Piece {
                bytes: b"\n".to_vec(),
                lines: 0,
            });
        }
    }

    /// Rewinds a partly written line, so that the new file gets it whole.
    fn begin_line_again(&mut self) {
        if let Some(piece) = self.unwritten.front_mut()
            && self.begun > 0
        {
            let whole = memchr::memrchr(b'\n', &piece.bytes[..self.begun]).map_or(0, |i| i + 1);
            let lines = memchr::memchr_iter(b'\n', &piece.bytes[..whole]).count();
            self.queue.written(whole);
            piece.bytes.drain(..whole);
            piece.lines -= lines as u64;
            self.begun = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use microcache_testkit::Folder;

    use super::*;

    /// A log in a file that is gone at the end of the test, as its thread would write it.
    struct World {
        _folder: Folder,
        path: PathBuf,
        writing: WriterThread,
    }

    impl World {
        fn with(text: &str) -> Self {
            let folder = Folder::new();
            let path = PathBuf::from(folder.write("log", text));
            let place = LogPlace::File(path.clone());
            let mut writing = WriterThread {
                sink: Sink::open(&place).expect("a log"),
                place: Arc::new(place),
                queue: Arc::new(LineQueue::new(1 << 16)),
                unwritten: VecDeque::new(),
                begun: 0,
                trouble: None,
                looked_at: Instant::now(),
            };
            writing.end_broken_line();
            Self {
                _folder: folder,
                path,
                writing,
            }
        }

        fn bring(&mut self, text: &str) {
            self.writing.unwritten.push_back(Piece {
                bytes: text.as_bytes().to_vec(),
                lines: text.lines().count() as u64,
            });
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.path).expect("a log")
        }
    }

    #[test]
    fn a_line_that_another_process_left_unfinished_is_ended_first() {
        for (before, expected) in [
            ("half a", "half a\none\n"),
            ("a\n", "a\none\n"),
            ("", "one\n"),
        ] {
            let mut world = World::with(before);
            world.bring("one\n");
            world.writing.write_all(true);
            assert_eq!(world.text(), expected);
        }
    }

    #[test]
    fn a_line_that_was_written_in_part_is_whole_in_the_new_file() {
        for (begun, expected) in [
            (0, "one\ntwo\nthree\nfour\n"),
            (2, "one\ntwo\nthree\nfour\n"),
            (4, "two\nthree\nfour\n"),
            (6, "two\nthree\nfour\n"),
            (9, "three\nfour\n"),
        ] {
            let mut world = World::with("");
            world.bring("one\ntwo\nthree\n");
            world.bring("four\n");
            world.writing.begun = begun;
            fs::remove_file(&world.path).expect("it is there");
            world.writing.reopen();
            world.writing.write_all(true);
            assert_eq!(world.text(), expected, "{begun}");
        }
    }
}
