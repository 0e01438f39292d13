//! Log events for the operator, rate limited.
//!
//! All events go through here, to `tracing`. The first one of a topic is logged at once. After that, a topic
//! has at most one line per second: the latest event with the number of suppressed ones, so that the log ends
//! with the current state. Of rejections it is the first one, because formatting each would cost more than
//! the rejection.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// `tracing` target of the server's events.
pub(crate) const TARGET: &str = "microcache";
/// Minimum interval between two lines of a topic.
const WHILE: Duration = Duration::from_secs(1);
/// Limit of concurrent topics: some for each server, each tier, and the server itself. Above it, topics of a
/// kind share one.
const MAX_TOPICS: usize = 4096;

/// Kind of a log event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The server as a whole: stop, signals.
    Server,
    /// A configuration was reloaded.
    Reloaded,
    /// A reload failed.
    NotReloaded,
    /// An upgrade completed: another process has taken over.
    Upgraded,
    /// An upgrade failed; this process continues.
    NotUpgraded,
    /// Maintenance mode was switched on or off.
    Maintenance,
    /// A list of URLs was warmed.
    Warming,
    /// The file with the most requested pages cannot be used.
    WarmStart,
    /// A request caused a panic.
    Panic,
    /// Purges of the previous process may be lost.
    PurgesLost,
    /// The disk has less free space than the tier may use.
    DiskTooSmall,
    /// Memory is full, and evictions began.
    MemoryFull,
    /// An untrusted peer sent forwarding fields.
    NotTrusted,
    /// A purge was refused for lack of permission.
    PurgeRefused,
    /// A request loop through an origin.
    Loop,
    /// A fragment is left out of its page.
    Fragment,
    /// A name does not resolve.
    Unresolved,
    /// The name resolves again.
    Resolved,
    /// A failed request to an origin server, by its log kind.
    Failure(&'static str),
    /// A server responds again.
    Answers,
    /// A server was ejected after failures.
    Down,
    /// A server is back in rotation.
    Up,
    /// A server failed its health checks.
    Unwell,
    /// A server passes its health checks again.
    Well,
    /// A tier is out of service, wholly or in part.
    TierDown,
    /// A tier is in service again.
    TierUp,
    /// Requests waited for a fetch of another process until its claim expired.
    ClaimExpired,
    /// A tier's server lacks commands, or has settings that lose records.
    TierSettings,
    /// A tier found foreign files, and leaves them alone.
    Foreign,
    /// The shared purge log was lost, or could not be read.
    LogLost,
    /// The queue of an upstream group is full.
    Busy,
    /// A server does not support HTTP/2, which is configured.
    NoHttp2,
    /// An application wrote to its error stream.
    ErrorOutput,
    /// A connection or tunnel limit is reached.
    NoRoom,
    /// A request or connection was rejected by a limit.
    Refused,
    /// A field of a client's request was withheld from the application.
    Withheld,
    /// A page could not be changed by the edits of its route.
    PageUnchanged,
    /// Trace export failed.
    Traces,
    /// A certificate was obtained by ACME.
    Certificate,
    /// A certificate could not be obtained by ACME.
    NoCertificate,
}

impl Kind {
    /// Name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Reloaded => "reloaded",
            Self::NotReloaded => "reload-failed",
            Self::Upgraded => "upgraded",
            Self::NotUpgraded => "upgrade-failed",
            Self::Maintenance => "maintenance",
            Self::Warming => "warming",
            Self::WarmStart => "warm-start-file",
            Self::Panic => "panic",
            Self::PurgesLost => "purges-lost",
            Self::DiskTooSmall => "disk-too-small",
            Self::MemoryFull => "memory-full",
            Self::NotTrusted => "untrusted-forwarded",
            Self::PurgeRefused => "purge-refused",
            Self::Loop => "loop-detected",
            Self::Fragment => "fragment-failed",
            Self::Unresolved => "dns-failed",
            Self::Resolved => "dns-recovered",
            Self::Failure(how) => how,
            Self::Answers => "origin-reachable",
            Self::Down => "origin-down",
            Self::Up => "origin-up",
            Self::Unwell => "origin-failing",
            Self::Well => "origin-recovered",
            Self::TierDown => "tier-down",
            Self::TierUp => "tier-up",
            Self::ClaimExpired => "claim-expired",
            Self::TierSettings => "tier-settings",
            Self::Foreign => "foreign-files",
            Self::LogLost => "purge-log-lost",
            Self::Busy => "upstream-busy",
            Self::NoHttp2 => "http2-unavailable",
            Self::ErrorOutput => "origin-stderr",
            Self::NoRoom => "connection-limit",
            Self::Refused => "refused",
            Self::Withheld => "withheld-field",
            Self::PageUnchanged => "page-unchanged",
            Self::Traces => "trace-export",
            Self::Certificate => "certificate",
            Self::NoCertificate => "certificate-failed",
        }
    }

    /// Emits a `tracing` event.
    fn emit(self, about: &str, more: u64, line: &str) {
        let kind = self.as_str();
        match self {
            Self::NotReloaded
            | Self::NotUpgraded
            | Self::Panic
            | Self::PurgesLost
            | Self::Down
            | Self::Unwell
            | Self::TierDown
            | Self::NoCertificate => {
                tracing::error!(target: TARGET, kind, about, more, "{line}");
            }
            Self::DiskTooSmall
            | Self::ClaimExpired
            | Self::TierSettings
            | Self::WarmStart
            | Self::Foreign
            | Self::LogLost
            | Self::NotTrusted
            | Self::PurgeRefused
            | Self::Loop
            | Self::Fragment
            | Self::Unresolved
            | Self::Failure(_)
            | Self::Busy
            | Self::NoHttp2
            | Self::ErrorOutput
            | Self::NoRoom
            | Self::Refused
            | Self::PageUnchanged
            | Self::Traces => tracing::warn!(target: TARGET, kind, about, more, "{line}"),
            Self::Server
            | Self::Reloaded
            | Self::Maintenance
            | Self::Warming
            | Self::Upgraded
            | Self::MemoryFull
            | Self::Resolved
            | Self::Answers
            | Self::Up
            | Self::Well
            | Self::Certificate
            | Self::Withheld
            | Self::TierUp => tracing::info!(target: TARGET, kind, about, more, "{line}"),
        }
    }
}

/// Sink of log events. Clones share it.
#[derive(Clone)]
pub struct Notices {
    book: Arc<NoticeState>,
}

type NoticeSink = Box<dyn Fn(Kind, &str, u64, &str) + Send + Sync>;

struct NoticeState {
    /// Receives the kind, the subject, the number of suppressed events, and the line.
    sink: NoticeSink,
    topics: Mutex<HashMap<(Kind, String), Topic>>,
}

/// A kind and subject that was logged within the last interval.
struct Topic {
    /// Time of its last line.
    logged_at: Instant,
    /// Events suppressed since.
    suppressed: u64,
    /// Line of the suppressed event to be logged.
    line: String,
    /// Time of the latest suppressed event.
    last_at: Instant,
}

impl Default for Notices {
    /// Emits `tracing` events.
    fn default() -> Self {
        Self::new(Kind::emit)
    }
}

impl Notices {
    fn new(sink: impl Fn(Kind, &str, u64, &str) + Send + Sync + 'static) -> Self {
        Self {
            book: Arc::new(NoticeState {
                sink: Box::new(sink),
                topics: Mutex::default(),
            }),
        }
    }

    /// Logs a line about a subject, or counts it if the topic was logged within the interval.
    pub fn say(&self, kind: Kind, about: &str, line: impl Into<String>) {
        self.say_at(Instant::now(), kind, about, || line.into());
    }

    /// Logs a rejection. The line is formatted only if it is logged.
    pub(crate) fn refused(&self, why: &str, line: impl FnOnce() -> String) {
        self.say_at(Instant::now(), Kind::Refused, why, line);
    }

    fn say_at(&self, now: Instant, kind: Kind, about: &str, line: impl FnOnce() -> String) {
        let more = {
            let mut topics = self.book.topics.lock();
            let mut of = (kind, about.to_owned());
            if topics.len() >= MAX_TOPICS && !topics.contains_key(&of) {
                of.1.clear();
            }
            match topics.get_mut(&of) {
                None => {
                    topics.insert(of, Topic::new(now));
                    0
                }
                Some(topic) if topic.is_over(now) => {
                    std::mem::replace(topic, Topic::new(now)).suppressed
                }
                Some(topic) => {
                    topic.suppressed += 1;
                    topic.last_at = now;
                    if topic.suppressed == 1 || kind != Kind::Refused {
                        topic.line = line();
                    }
                    return;
                }
            }
        };
        (self.book.sink)(kind, about, more, &line());
    }

    /// Logs suppressed events whose interval is over. To be called periodically.
    pub(crate) fn tick(&self) {
        self.tick_at(Instant::now());
    }

    /// Logs all suppressed events, at the end.
    pub(crate) fn settle(&self) {
        self.log_suppressed(|_| true, Instant::now());
    }

    fn tick_at(&self, now: Instant) {
        self.log_suppressed(|topic| topic.is_over(now), now);
    }

    fn log_suppressed(&self, is_due: impl Fn(&Topic) -> bool, now: Instant) {
        let mut due = Vec::new();
        self.book.topics.lock().retain(|of, topic| {
            if !is_due(topic) {
                return true;
            }
            if topic.suppressed == 0 {
                return false;
            }
            due.push((of.clone(), std::mem::replace(topic, Topic::new(now))));
            true
        });
        due.sort_by_key(|(_, topic)| topic.last_at);
        for ((kind, about), topic) in due {
            (self.book.sink)(kind, &about, topic.suppressed - 1, &topic.line);
        }
    }
}

impl Topic {
    const fn new(now: Instant) -> Self {
        Self {
            logged_at: now,
            suppressed: 0,
            line: String::new(),
            last_at: now,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.logged_at) >= WHILE
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
    let logged = Arc::clone(&lines);
    let notices = Notices::new(move |_, _, more, line| {
        logged.lock().push(match more {
            0 => line.to_owned(),
            _ => format!("{line} (and {more} more like this)"),
        });
    });
    (notices, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: Kind = Kind::Failure("origin-connect");

    #[test]
    fn the_first_event_is_logged_at_once_and_later_ones_once_a_second_with_their_number() {
        let (notices, logged) = collected();
        let start = Instant::now();
        let later = |millis| start + Duration::from_millis(millis);
        for number in 0..10_000 {
            notices.say_at(start, FAILURE, "a", || format!("a: {number}"));
        }
        notices.say_at(start, FAILURE, "b", || "b: 0".to_owned());
        notices.say_at(start, Kind::Failure("late"), "a", || "a is late".to_owned());
        notices.tick_at(later(999));
        assert_eq!(*logged.lock(), ["a: 0", "b: 0", "a is late"]);
        notices.tick_at(later(1000));
        assert_eq!(logged.lock()[3], "a: 9999 (and 9998 more like this)");
        notices.say_at(later(1001), FAILURE, "a", || "still".to_owned());
        notices.tick_at(later(1999));
        assert_eq!(logged.lock().len(), 4, "that line was the next second's");
        notices.tick_at(later(2000));
        assert_eq!(logged.lock()[4..], ["still"]);
    }

    #[test]
    fn every_line_is_logged_or_counted() {
        let (notices, logged) = collected();
        let start = Instant::now();
        for number in 0..5000 {
            let now = start + Duration::from_millis(number);
            notices.say_at(now, FAILURE, "a", || "a".to_owned());
            if number % 700 == 0 {
                notices.tick_at(now);
            }
        }
        notices.settle();
        let logged = logged.lock();
        assert!((5..=7).contains(&logged.len()), "{logged:?}");
        let more = |line: &String| -> u64 {
            let digits = line.split_whitespace().nth(2);
            digits.map_or(0, |digits| digits.parse().expect("a number"))
        };
        let counted: u64 = logged.iter().map(|line| 1 + more(line)).sum();
        assert_eq!(counted, 5000);
    }

    #[test]
    fn the_log_ends_with_how_things_stand() {
        let (notices, logged) = collected();
        let start = Instant::now();
        for round in 0..5 {
            let now = start + Duration::from_millis(round);
            notices.say_at(now, Kind::Down, "a", || "down".to_owned());
            notices.say_at(now, Kind::Up, "a", || "up".to_owned());
        }
        notices.say_at(start + WHILE / 2, Kind::Down, "b", || {
            "b is down".to_owned()
        });
        let last = start + Duration::from_millis(9);
        notices.say_at(last, Kind::Down, "a", || "down at last".to_owned());
        notices.settle();
        let expected = [
            "down",
            "up",
            "b is down",
            "up (and 3 more like this)",
            "down at last (and 4 more like this)",
        ];
        assert_eq!(*logged.lock(), expected);
    }

    #[test]
    fn suppressed_lines_are_counted_with_the_next_one() {
        let (notices, logged) = collected();
        let start = Instant::now();
        for line in ["first", "second"] {
            notices.say_at(start, FAILURE, "a", || line.to_owned());
        }
        // No tick has run in the meantime.
        notices.say_at(start + WHILE * 2, FAILURE, "a", || "third".to_owned());
        notices.settle();
        assert_eq!(*logged.lock(), ["first", "third (and 1 more like this)"]);
    }

    #[test]
    fn rejections_are_formatted_only_if_logged() {
        let (notices, logged) = collected();
        let start = Instant::now();
        let mut made = 0;
        for number in 0..10_000 {
            notices.say_at(start, Kind::Refused, "rate", || {
                made += 1;
                number.to_string()
            });
        }
        notices.settle();
        assert_eq!(*logged.lock(), ["0", "1 (and 9998 more like this)"]);
        assert_eq!(made, 2);
    }

    #[test]
    fn topics_are_bounded() {
        let (notices, logged) = collected();
        let start = Instant::now();
        for number in 0..2 * MAX_TOPICS {
            notices.say_at(start, FAILURE, &number.to_string(), || "x".to_owned());
        }
        assert_eq!(logged.lock().len(), MAX_TOPICS + 1);
        assert!(notices.book.topics.lock().len() <= MAX_TOPICS + 1);
        notices.tick_at(start + WHILE);
        notices.tick_at(start + WHILE * 2);
        assert!(notices.book.topics.lock().is_empty());
    }
}
