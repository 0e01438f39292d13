//! Load balancing among the servers of a group, and their passive and active health.
//!
//! One short lock, taken when a server is chosen, when its response begins, and when the request ends.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use microcache_engine::body::BodyError;
use microcache_engine::origin::OriginError;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::counters::ServerCounters;
use super::settings::{Balancing, GroupSettings, HealthCheck, ServerSettings};
use crate::observe::{Kind, Notices};

/// Health and load of a group's servers, in the order of their settings.
#[derive(Debug)]
pub(super) struct Balance {
    balancing: Balancing,
    fail_limit: u32,
    fail_status: Option<RangeInclusive<u16>>,
    fail_pause: Duration,
    notices: Notices,
    book: Mutex<Vec<Candidate>>,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says something of its own, and they occur in every combination"
)]
struct Candidate {
    /// Name in the log.
    name: Arc<str>,
    /// The latest event in the log about this server is a failure.
    is_doubted: bool,
    weight: u64,
    backup: bool,
    outstanding: u64,
    requests: u64,
    failures: u64,
    /// Credit of smooth weighted round robin.
    credit: i64,
    failures_in_a_row: u32,
    last_failure: Option<Instant>,
    /// End of the ejection after failures; from then on, one trial request at a time.
    out_until: Option<Instant>,
    on_trial: bool,
    /// Ejected by active health checks.
    unwell: bool,
    checks_in_a_row: u32,
    record: ServerCounters,
    down_since: Option<Instant>,
}

/// State of a server, for the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerHealth {
    /// The server is in rotation.
    pub up: bool,
    /// Duration of the present outage.
    pub down_for: Option<Duration>,
    /// Requests in flight.
    pub outstanding: u64,
    /// Requests sent to the server.
    pub requests: u64,
    /// Failed requests.
    pub failures: u64,
    /// Further counters.
    pub record: ServerCounters,
}

/// One request's slot on a server; ends when it is dropped.
#[derive(Debug)]
pub(super) struct ServerAssignment {
    balance: Arc<Balance>,
    /// Index of the server in the group.
    pub(super) index: usize,
    /// All servers were down, and this one failed longest ago.
    pub(super) last_resort: bool,
    trial: bool,
    ended: Option<ResponseTotals>,
}

/// Totals of a completely received response: bytes of content received and sent, and its duration if that is
/// representative of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTotals {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) took: Option<Duration>,
}

impl Balance {
    pub(super) fn new(settings: &GroupSettings, notices: Notices) -> Arc<Self> {
        Self::succeeding(None, settings, notices)
    }

    /// Takes over the state of servers that the previous balance has too.
    pub(super) fn succeeding(
        before: Option<&Self>,
        settings: &GroupSettings,
        notices: Notices,
    ) -> Arc<Self> {
        let known = before.map(|before| before.book.lock());
        let candidate = |server: &ServerSettings| {
            let mut new = Candidate::new(server);
            let known = known.iter().flat_map(|book| book.iter());
            if let Some(known) = known.into_iter().find(|known| known.name == new.name) {
                new.learn(known, settings.health.is_some());
            }
            new
        };
        let book = settings.servers.iter().map(candidate).collect();
        Arc::new(Self {
            balancing: settings.balancing,
            fail_limit: settings.fail_limit.max(1),
            fail_status: settings.fail_status.clone(),
            fail_pause: settings.fail_pause,
            notices,
            book: Mutex::new(book),
        })
    }

    /// Chooses among the servers that were not `tried` yet: one of those that are up, by `balance`,
    /// backups if none is, else the one whose failure is longest ago, because trying is better
    /// than certain failure.
    pub(super) fn choose(
        self: &Arc<Self>,
        tried: &[usize],
        now: Instant,
    ) -> Option<ServerAssignment> {
        let mut book = self.book.lock();
        let index = [false, true].into_iter().find_map(|backup| {
            let usable = usable(&book, backup, tried, now);
            next(&mut book, &usable, self.balancing)
        });
        let last_resort = index.is_none();
        let index = index.or_else(|| {
            (0..book.len())
                .filter(|i| !tried.contains(i))
                .min_by_key(|&i| book[i].last_failure)
        })?;
        Some(self.give(&mut book, index, last_resort))
    }

    /// Chooses a given server, without an alternative.
    pub(super) fn assign(self: &Arc<Self>, index: usize) -> ServerAssignment {
        self.give(&mut self.book.lock(), index, true)
    }

    fn give(
        self: &Arc<Self>,
        book: &mut [Candidate],
        index: usize,
        last_resort: bool,
    ) -> ServerAssignment {
        let entry = &mut book[index];
        let trial = entry.out_until.is_some() && !entry.on_trial;
        entry.on_trial |= trial;
        entry.outstanding += 1;
        entry.requests += 1;
        ServerAssignment {
            balance: Arc::clone(self),
            index,
            last_resort,
            trial,
            ended: None,
        }
    }

    /// Records the result of an active check; `seen` is the reason of a failed one.
    pub(super) fn checked(&self, index: usize, seen: Result<(), &str>, check: &HealthCheck) {
        let well = seen.is_ok();
        let mut book = self.book.lock();
        let entry = &mut book[index];
        entry.record.checks += 1;
        entry.record.failed_checks += u64::from(!well);
        entry.record.last_check = Some(well);
        if well != entry.unwell {
            entry.checks_in_a_row = 0;
            return;
        }
        entry.checks_in_a_row += 1;
        if entry.checks_in_a_row >= if well { check.rise } else { check.fall } {
            entry.unwell = !well;
            entry.checks_in_a_row = 0;
            entry.note_outage(Instant::now());
            let name = Arc::clone(&entry.name);
            drop(book);
            let (kind, line) = match seen {
                Ok(()) => (Kind::Well, format!("{name} passes its health check again")),
                Err(saw) => (
                    Kind::Unwell,
                    format!(
                        "{name} fails its health check: {} {} {saw}",
                        check.method, check.path
                    ),
                ),
            };
            self.notices.say(kind, &name, line);
        }
    }

    pub(super) fn health(&self, now: Instant) -> Vec<ServerHealth> {
        let book = self.book.lock();
        book.iter()
            .map(|entry| ServerHealth {
                up: entry.is_usable(now) && entry.out_until.is_none(),
                down_for: entry
                    .down_since
                    .map(|since| now.saturating_duration_since(since)),
                outstanding: entry.outstanding,
                requests: entry.requests,
                failures: entry.failures,
                record: entry.record_at(now),
            })
            .collect()
    }
}

impl Candidate {
    fn new(server: &ServerSettings) -> Self {
        Self {
            name: format!("origin {}", server.address).into(),
            is_doubted: false,
            weight: u64::from(server.weight.max(1)),
            backup: server.backup,
            outstanding: 0,
            requests: 0,
            failures: 0,
            credit: 0,
            failures_in_a_row: 0,
            last_failure: None,
            out_until: None,
            on_trial: false,
            unwell: false,
            checks_in_a_row: 0,
            record: ServerCounters::default(),
            down_since: None,
        }
    }

    /// Records outages and downtime.
    fn note_outage(&mut self, now: Instant) {
        let is_down = self.is_out();
        if is_down && self.down_since.is_none() {
            self.record.outages += 1;
            self.down_since = Some(now);
        } else if !is_down {
            self.record = self.record_at(now);
            self.down_since = None;
        }
    }

    fn record_at(&self, now: Instant) -> ServerCounters {
        let down = self
            .down_since
            .map(|since| now.saturating_duration_since(since));
        ServerCounters {
            downtime: self.record.downtime + down.unwrap_or_default(),
            ..self.record
        }
    }

    /// Takes over the state of the same server from an earlier configuration. Without active checks, nothing
    /// would return an ejected server to rotation, so `unwell` is dropped then.
    fn learn(&mut self, known: &Self, is_checked: bool) {
        self.is_doubted = known.is_doubted;
        self.requests = known.requests;
        self.failures = known.failures;
        self.failures_in_a_row = known.failures_in_a_row;
        self.last_failure = known.last_failure;
        self.out_until = known.out_until;
        self.unwell = known.unwell && is_checked;
        self.record = known.record;
        self.down_since = known.down_since;
    }

    /// Returns whether health checks or failures took the server out.
    fn is_out(&self) -> bool {
        self.unwell || self.out_until.is_some()
    }

    fn is_usable(&self, now: Instant) -> bool {
        !self.unwell
            && self
                .out_until
                .is_none_or(|end| end <= now && !self.on_trial)
    }
}

/// Indexes of servers. Few groups have more.
type ServerIndexes = SmallVec<[usize; 8]>;

fn usable(book: &[Candidate], backup: bool, tried: &[usize], now: Instant) -> ServerIndexes {
    let servers = book.iter().enumerate();
    servers
        .filter(|(i, entry)| entry.backup == backup && !tried.contains(i) && entry.is_usable(now))
        .map(|(i, _)| i)
        .collect()
}

/// Returns the next server by smooth weighted round robin: among all candidates, or among those with the fewest
/// requests relative to their weight.
fn next(book: &mut [Candidate], candidates: &[usize], balancing: Balancing) -> Option<usize> {
    if let [only] = candidates {
        return Some(*only);
    }
    let busier = |a: usize, b: usize| {
        (book[a].outstanding * book[b].weight).cmp(&(book[b].outstanding * book[a].weight))
    };
    let idlest = candidates.iter().copied().min_by(|&a, &b| busier(a, b))?;
    let is_next = |i: usize| balancing == Balancing::RoundRobin || busier(i, idlest).is_eq();
    let equals: ServerIndexes = candidates.iter().copied().filter(|&i| is_next(i)).collect();
    let mut total = 0;
    for &i in &equals {
        let weight = i64::try_from(book[i].weight).unwrap_or(i64::from(u32::MAX));
        book[i].credit += weight;
        total += weight;
    }
    // `max_by_key` returns the last of equals, but the first is needed.
    let chosen = equals.into_iter().rev().max_by_key(|&i| book[i].credit)?;
    book[chosen].credit -= total;
    Some(chosen)
}

impl ServerAssignment {
    /// Records a response and its time to first byte: the server is up, unless the status is one of `fail_status`.
    pub(super) fn answered(&mut self, status: u16, took: Duration, now: Instant) {
        let mut book = self.balance.book.lock();
        let entry = &mut book[self.index];
        entry.record.answered(status, took);
        let failing = self.balance.fail_status.as_ref();
        if failing.is_some_and(|statuses| statuses.contains(&status)) {
            drop(book);
            self.count_failure(now, Some(status));
            return;
        }
        entry.failures_in_a_row = 0;
        entry.on_trial = false;
        self.trial = false;
        let was_out = entry.out_until.take().is_some();
        if was_out {
            entry.note_outage(now);
        }
        if std::mem::take(&mut entry.is_doubted) || was_out {
            let name = Arc::clone(&entry.name);
            drop(book);
            let (kind, how) = if was_out {
                (Kind::Up, "is up")
            } else {
                (Kind::Answers, "answers")
            };
            let line = format!("{name} {how} again");
            self.balance.notices.say(kind, &name, line);
        }
    }

    /// Records a failed request; the kind of error decides whether it counts against the server.
    pub(super) fn failed(&mut self, why: &OriginError, now: Instant) {
        let Some((kind, line)) = server_fault(why) else {
            return;
        };
        self.log_failure(kind, &line);
        // A server that sends malformed responses is reachable, and others may be well-formed.
        if !matches!(why, OriginError::Malformed(_)) {
            self.count_failure(now, None);
        }
    }

    /// Records the end of the response.
    pub(super) fn ended(&mut self, ended: ResponseTotals) {
        self.ended = Some(ended);
    }

    /// Records a truncated response.
    pub(super) fn broke_off(&mut self, why: &BodyError) {
        self.log_failure(
            "origin-truncated",
            &format!("a response was truncated: {why}"),
        );
    }

    /// Logs a failure of the server.
    fn log_failure(&self, kind: &'static str, what: &str) {
        let mut book = self.balance.book.lock();
        let entry = &mut book[self.index];
        entry.is_doubted = true;
        let name = Arc::clone(&entry.name);
        drop(book);
        let line = format!("{name}: {what}");
        self.balance.notices.say(Kind::Failure(kind), &name, line);
    }

    /// Counts a failure, and takes the server out at the limit. A response with a failing status does so only while
    /// at least half of the servers stay in: an application that is at fault answers the same on all of them.
    fn count_failure(&mut self, now: Instant, status: Option<u16>) {
        let mut book = self.balance.book.lock();
        let out = book.iter().filter(|entry| entry.is_out()).count();
        let stays_in = status.is_some() && (out + 1) * 2 > book.len();
        let entry = &mut book[self.index];
        entry.failures += 1;
        let failures = entry.failures_in_a_row.saturating_add(1);
        entry.failures_in_a_row = failures;
        entry.last_failure = Some(now);
        if self.trial {
            entry.on_trial = false;
            self.trial = false;
        }
        let was_out = entry.out_until.is_some();
        if failures < self.balance.fail_limit || (stays_in && !was_out) {
            return;
        }
        let pause = self.balance.fail_pause;
        entry.out_until = now.checked_add(pause);
        entry.note_outage(now);
        if !was_out {
            let name = Arc::clone(&entry.name);
            drop(book);
            let failed = match failures {
                1 => "1 failure".to_owned(),
                _ => format!("{failures} failures in a row"),
            };
            let last = status.map_or_else(String::new, |status| {
                format!(", the last with status {status}")
            });
            let line = format!(
                "{name} is down after {failed}{last}; one request tries it every {pause:?}"
            );
            self.balance.notices.say(Kind::Down, &name, line);
        }
    }
}

/// Log kind and message of a failure of the server; `None` if it is not the server's fault.
fn server_fault(why: &OriginError) -> Option<(&'static str, String)> {
    match why {
        OriginError::Connect(what) => Some(("origin-connect", format!("cannot connect: {what}"))),
        OriginError::Disconnected => Some((
            "origin-disconnected",
            "it closed the connection without an answer".to_owned(),
        )),
        OriginError::Timeout => Some((
            "origin-timeout",
            "no answer within `first_byte_timeout`".to_owned(),
        )),
        OriginError::Malformed(what) => Some((
            "origin-malformed",
            format!("its answer was malformed: {what}"),
        )),
        OriginError::Busy
        | OriginError::Left
        | OriginError::Down
        | OriginError::RequestBody(_)
        | OriginError::Other(_) => None,
    }
}

impl Drop for ServerAssignment {
    fn drop(&mut self) {
        let mut book = self.balance.book.lock();
        let entry = &mut book[self.index];
        entry.outstanding -= 1;
        if let Some(ended) = &self.ended {
            entry.record.ended(ended.received, ended.sent, ended.took);
        }
        if self.trial {
            entry.on_trial = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::collected;

    fn balance(weights: &[u32], backups: &[usize]) -> Arc<Balance> {
        telling(weights, backups, Notices::default())
    }

    fn telling(weights: &[u32], backups: &[usize], notices: Notices) -> Arc<Balance> {
        Balance::new(&settings(weights, backups), notices)
    }

    fn settings(weights: &[u32], backups: &[usize]) -> GroupSettings {
        let servers = weights
            .iter()
            .enumerate()
            .map(|(i, &weight)| ServerSettings {
                weight,
                backup: backups.contains(&i),
                ..ServerSettings::new("127.0.0.1", 1)
            });
        GroupSettings {
            fail_limit: 2,
            fail_pause: Duration::from_secs(5),
            ..GroupSettings::new("test", servers.collect())
        }
    }

    fn take(balance: &Arc<Balance>, now: Instant) -> ServerAssignment {
        balance.choose(&[], now).expect("a server")
    }

    fn fail(balance: &Arc<Balance>, index: usize, times: u32, now: Instant) {
        let others: Vec<usize> = (0..balance.book.lock().len())
            .filter(|&i| i != index)
            .collect();
        for _ in 0..times {
            let mut assignment = balance.choose(&others, now).expect("this server");
            assert_eq!(assignment.index, index);
            assignment.failed(&OriginError::Disconnected, now);
        }
    }

    #[test]
    fn one_after_the_other_requests_follow_the_weights() {
        let balance = balance(&[3, 1, 2], &[]);
        let mut counts = [0; 3];
        for _ in 0..60 {
            counts[take(&balance, Instant::now()).index] += 1;
        }
        assert_eq!(counts, [30, 10, 20]);
    }

    #[test]
    fn at_once_the_least_busy_for_its_weight_is_next() {
        let balance = balance(&[1, 3], &[]);
        let now = Instant::now();
        let mut turns: Vec<ServerAssignment> = (0..8).map(|_| take(&balance, now)).collect();
        assert_eq!(
            turns
                .iter()
                .filter(|assignment| assignment.index == 0)
                .count(),
            2
        );
        turns.retain(|assignment| assignment.index != 0);
        assert_eq!(balance.health(now)[0].outstanding, 0);
        assert_eq!(take(&balance, now).index, 0);
    }

    #[test]
    fn in_turn_whatever_the_servers_are_doing() {
        let settings = GroupSettings {
            balancing: Balancing::RoundRobin,
            ..settings(&[1, 3], &[])
        };
        let balance = Balance::new(&settings, Notices::default());
        let now = Instant::now();
        let mut counts = [0; 2];
        let mut slow = Vec::new();
        for _ in 0..40 {
            let assignment = take(&balance, now);
            counts[assignment.index] += 1;
            // The requests of the first server do not end.
            slow.extend(Some(assignment).filter(|assignment| assignment.index == 0));
        }
        assert_eq!(counts, [10, 30]);
    }

    #[test]
    fn failing_statuses_take_out_at_most_half_of_the_servers() {
        let (notices, logged) = collected();
        let settings = GroupSettings {
            fail_status: Some(500..=599),
            ..settings(&[1; 5], &[])
        };
        let balance = Balance::new(&settings, notices);
        let start = Instant::now();
        let up = |now| {
            let health = balance.health(now);
            health.iter().filter(|server| server.up).count()
        };
        for _ in 0..100 {
            take(&balance, start).answered(503, Duration::ZERO, start);
        }
        assert_eq!(up(start), 3, "two of five");
        // A trial with a failing status keeps the server out, another one brings it back.
        let later = start + Duration::from_secs(5);
        let out = |now: Instant| {
            let health = balance.health(now);
            health.iter().position(|server| !server.up).unwrap()
        };
        let first = out(later);
        let others: Vec<usize> = (0..5).filter(|&i| i != first).collect();
        let trial = || balance.choose(&others, later).expect("this server");
        trial().answered(500, Duration::ZERO, later);
        assert_eq!(up(later), 3);
        let later = later + Duration::from_secs(5);
        balance
            .choose(&others, later)
            .expect("this server")
            .answered(404, Duration::ZERO, later);
        assert_eq!(up(later), 4);
        // Servers that cannot be reached are always taken out.
        for index in 0..5 {
            fail(&balance, index, 2, later);
        }
        assert_eq!(up(later), 0);
        let line = "is down after 2 failures in a row, the last with status 503; one request tries it every 5s";
        assert_eq!(logged.lock()[0], format!("origin 127.0.0.1:1 {line}"));
    }

    #[test]
    fn a_single_server_is_never_taken_out_for_its_statuses() {
        let settings = GroupSettings {
            fail_status: Some(500..=500),
            ..settings(&[1], &[])
        };
        let balance = Balance::new(&settings, Notices::default());
        let now = Instant::now();
        for _ in 0..10 {
            take(&balance, now).answered(500, Duration::ZERO, now);
        }
        assert!(balance.health(now)[0].up);
        assert_eq!(balance.health(now)[0].failures, 10);
    }

    #[test]
    fn failures_in_a_row_take_a_server_out_until_a_trial_succeeds() {
        let balance = balance(&[1, 1], &[]);
        let start = Instant::now();
        fail(&balance, 0, 1, start);
        assert!(balance.health(start)[0].up, "once is not enough");
        fail(&balance, 0, 1, start);
        assert!(!balance.health(start)[0].up);
        for _ in 0..5 {
            assert_eq!(take(&balance, start).index, 1);
        }
        let later = start + Duration::from_secs(5);
        let busy = take(&balance, start);
        let mut trial = take(&balance, later);
        assert_eq!(trial.index, 0);
        assert_eq!(take(&balance, later).index, 1, "one trial at a time");
        trial.failed(&OriginError::Timeout, later);
        assert_eq!(take(&balance, later).index, 1, "out again");
        drop(trial);
        let much_later = later + Duration::from_secs(5);
        let abandoned = take(&balance, much_later);
        assert_eq!(abandoned.index, 0);
        drop(abandoned);
        let mut trial = take(&balance, much_later);
        assert_eq!(trial.index, 0);
        trial.answered(200, Duration::ZERO, much_later);
        drop((trial, busy));
        let standing = balance.health(much_later)[0];
        assert!(standing.up);
        assert_eq!((standing.failures, standing.outstanding), (3, 0));
    }

    #[test]
    fn an_answer_forgives_earlier_failures() {
        let balance = balance(&[1], &[]);
        let now = Instant::now();
        fail(&balance, 0, 1, now);
        take(&balance, now).answered(200, Duration::ZERO, now);
        fail(&balance, 0, 1, now);
        assert!(balance.health(now)[0].up);
    }

    #[test]
    fn backups_serve_while_all_others_are_out_or_tried() {
        let balance = balance(&[1, 1, 1], &[2]);
        let now = Instant::now();
        fail(&balance, 0, 2, now);
        assert_eq!(take(&balance, now).index, 1);
        assert_eq!(
            balance.choose(&[1], now).map(|assignment| assignment.index),
            Some(2)
        );
        fail(&balance, 1, 2, now);
        let assignment = take(&balance, now);
        assert_eq!((assignment.index, assignment.last_resort), (2, false));
    }

    #[test]
    fn with_all_servers_down_the_one_with_the_oldest_failure_is_tried() {
        let balance = balance(&[1, 1], &[]);
        let start = Instant::now();
        fail(&balance, 1, 2, start);
        fail(&balance, 0, 2, start + Duration::from_secs(1));
        let assignment = take(&balance, start + Duration::from_secs(1));
        assert_eq!((assignment.index, assignment.last_resort), (1, true));
        let none = balance.choose(&[0, 1], start);
        assert!(none.is_none());
    }

    #[test]
    fn active_checks_take_out_and_bring_back() {
        let balance = balance(&[1, 1], &[]);
        let check = HealthCheck {
            rise: 2,
            fall: 3,
            ..HealthCheck::default()
        };
        let now = Instant::now();
        let up = |well: bool| {
            balance.checked(0, well.then_some(()).ok_or("was answered 500"), &check);
            balance.health(now)[0].up
        };
        assert_eq!([up(false), up(false), up(true)], [true; 3]);
        assert_eq!([up(false), up(false), up(false)], [true, true, false]);
        assert_eq!([up(true), up(false), up(true)], [false; 3]);
        assert!(up(true));
    }

    #[test]
    fn the_log_has_the_reason_and_when_it_is_over() {
        let (notices, logged) = collected();
        let balance = telling(&[1], &[], notices);
        let now = Instant::now();
        let refused = OriginError::Connect("connection refused".into());
        for why in [
            &refused,
            &OriginError::Malformed("no status line"),
            &OriginError::RequestBody(BodyError::Disconnected),
            &OriginError::Busy,
        ] {
            take(&balance, now).failed(why, now);
        }
        let standing = balance.health(now)[0];
        assert!(standing.up && standing.failures == 1, "{standing:?}");
        take(&balance, now).answered(200, Duration::ZERO, now);
        take(&balance, now).answered(200, Duration::ZERO, now);
        for _ in 0..3 {
            take(&balance, now).failed(&refused, now);
        }
        let mut last = take(&balance, now);
        last.answered(200, Duration::ZERO, now);
        last.broke_off(&BodyError::Incomplete);
        let check = HealthCheck::default();
        for _ in 0..3 {
            balance.checked(0, Err("was answered 500"), &check);
        }
        let expected = [
            ": cannot connect: connection refused",
            ": its answer was malformed: no status line",
            " answers again",
            " is down after 2 failures in a row; one request tries it every 5s",
            " is up again",
            ": a response was truncated: the body ended before its announced length",
            " fails its health check: GET / was answered 500",
        ];
        let expected = expected.map(|line| format!("origin 127.0.0.1:1{line}"));
        assert_eq!(*logged.lock(), expected);
    }
}
