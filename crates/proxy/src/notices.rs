//! What an operator is told while the server runs.
//!
//! What is worth a line goes through here and is handed to whoever started the server. A fault that happens ten thousand times a second is still a
//! few lines a minute: each topic has so many in a while, the rest is counted, and the last of it
//! is told when the while is over, so that the log ends with how things stand.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The while in which a topic has so many lines.
const WHILE: Duration = Duration::from_mins(1);
/// The most topics at a time. There are some for each server, each tier, and the server itself; what
/// is beyond the bound shares one.
const MAX_TOPICS: usize = 4096;

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The server as a whole: how it ends, what it met for the first time.
    Server,
    /// What a name resolves to.
    Name,
    /// One way in which requests to a server fail.
    Failure(&'static str),
    /// A server or a tier is down, or in order again.
    Standing,
    /// A bound was met: the queue before a group of servers, connections, tunnels.
    Busy,
}

impl Kind {
    /// The most lines of a topic in a while.
    const fn lines(self) -> u32 {
        match self {
            Self::Failure(_) | Self::Busy => 1,
            Self::Name | Self::Standing => 6,
            Self::Server => 20,
        }
    }
}

/// Where notices go. Every clone goes there too.
#[derive(Clone)]
pub struct Notices {
    book: Arc<Book>,
}

struct Book {
    tell: Box<dyn Fn(&str) + Send + Sync>,
    topics: Mutex<HashMap<(Kind, String), Topic>>,
}

struct Topic {
    /// When its while began.
    since: Instant,
    /// Lines told in it.
    told: u32,
    /// Lines held back in it.
    held: u64,
    /// The last of those.
    last: String,
}

impl Notices {
    /// Notices that are handed to `tell`, one line at a time and without an end of line.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            book: Arc::new(Book {
                tell: Box::new(tell),
                topics: Mutex::default(),
            }),
        }
    }

    /// Notices that nobody reads.
    pub fn silent() -> Self {
        Self::new(|_| {})
    }

    /// Tells a line about `whom`, or counts it if there were enough like it.
    pub(crate) fn say(&self, kind: Kind, whom: &str, line: impl Into<String>) {
        self.say_at(Instant::now(), kind, whom, line.into());
    }

    fn say_at(&self, now: Instant, kind: Kind, whom: &str, line: String) {
        let mut topics = self.book.topics.lock();
        let mut of = (kind, whom.to_owned());
        if topics.len() >= MAX_TOPICS && !topics.contains_key(&of) {
            of.1.clear();
        }
        let topic = topics.entry(of).or_insert_with(|| Topic::new(now));
        if topic.is_over(now) && topic.held == 0 {
            *topic = Topic::new(now);
        }
        if topic.told < kind.lines() && topic.held == 0 {
            topic.told += 1;
            drop(topics);
            (self.book.tell)(&line);
        } else {
            topic.held += 1;
            topic.last = line;
        }
    }

    /// Tells what was held back until now, where its while is over. To be called now and then.
    pub(crate) fn tick(&self) {
        self.tick_at(Instant::now());
    }

    /// Tells everything that was held back, at the end.
    pub(crate) fn settle(&self) {
        self.tell_held(|_| true, Instant::now());
    }

    fn tick_at(&self, now: Instant) {
        self.tell_held(|topic| topic.is_over(now), now);
    }

    fn tell_held(&self, is_due: impl Fn(&Topic) -> bool, now: Instant) {
        let mut lines = Vec::new();
        self.book.topics.lock().retain(|_, topic| {
            if !is_due(topic) {
                return true;
            }
            if topic.held == 0 {
                return false;
            }
            lines.push(topic.held_line());
            *topic = Topic {
                told: 1,
                ..Topic::new(now)
            };
            true
        });
        for line in lines {
            (self.book.tell)(&line);
        }
    }
}

impl Topic {
    const fn new(now: Instant) -> Self {
        Self {
            since: now,
            told: 0,
            held: 0,
            last: String::new(),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WHILE
    }

    fn held_line(&self) -> String {
        match self.held {
            1 => self.last.clone(),
            held => format!("{} (the last of {held} such lines)", self.last),
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics = self.book.topics.lock().len();
        write!(f, "Notices({topics} topics)")
    }
}

/// Notices that a test reads.
#[cfg(test)]
pub(crate) fn collected() -> (Notices, Arc<Mutex<Vec<String>>>) {
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&lines);
    let notices = Notices::new(move |line| told.lock().push(line.to_owned()));
    (notices, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: Kind = Kind::Failure("refused");

    #[test]
    fn one_line_a_while_and_then_how_many_there_were() {
        let (notices, told) = collected();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        for number in 0..10_000 {
            notices.say_at(start, FAILURE, "a", format!("a: {number}"));
        }
        notices.say_at(start, FAILURE, "b", "b: 0".to_owned());
        notices.say_at(start, Kind::Failure("late"), "a", "a is late".to_owned());
        notices.tick_at(later(59));
        assert_eq!(*told.lock(), ["a: 0", "b: 0", "a is late"]);
        notices.tick_at(later(60));
        assert_eq!(told.lock()[3], "a: 9999 (the last of 9999 such lines)");
        notices.say_at(later(61), FAILURE, "a", "still".to_owned());
        notices.tick_at(later(119));
        assert_eq!(told.lock().len(), 4, "that line was the next while's");
        notices.tick_at(later(120));
        assert_eq!(told.lock()[4..], ["still"]);
    }

    #[test]
    fn the_log_ends_with_how_things_stand() {
        let (notices, told) = collected();
        let start = Instant::now();
        for _ in 0..5 {
            notices.say_at(start, Kind::Standing, "a", "down".to_owned());
            notices.say_at(start, Kind::Standing, "a", "up".to_owned());
        }
        assert_eq!(told.lock().len(), 6);
        notices.settle();
        let told = told.lock();
        assert_eq!(told[6..], ["up (the last of 4 such lines)"]);
    }

    #[test]
    fn what_is_held_is_told_before_what_comes_later() {
        let (notices, told) = collected();
        let start = Instant::now();
        let later = start + WHILE * 2;
        for line in ["first", "second"] {
            notices.say_at(start, FAILURE, "a", line.to_owned());
        }
        // Nobody has looked after it in the meantime.
        notices.say_at(later, FAILURE, "a", "third".to_owned());
        notices.tick_at(later);
        assert_eq!(*told.lock(), ["first", "third (the last of 2 such lines)"]);
    }

    #[test]
    fn topics_are_bounded() {
        let (notices, told) = collected();
        let start = Instant::now();
        for number in 0..2 * MAX_TOPICS {
            notices.say_at(start, FAILURE, &number.to_string(), "x".to_owned());
        }
        assert_eq!(told.lock().len(), MAX_TOPICS + 1);
        assert!(notices.book.topics.lock().len() <= MAX_TOPICS + 1);
        notices.tick_at(start + WHILE);
        notices.tick_at(start + WHILE * 2);
        assert!(notices.book.topics.lock().is_empty());
    }
}
