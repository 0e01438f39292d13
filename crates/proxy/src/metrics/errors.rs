//! Recent errors with their reasons, in bounded memory.

use std::collections::VecDeque;

use microcache_policy::Time;

/// Errors kept, per kind.
const MOST: usize = 128;
/// Latest errors of a kind that a new one is compared with, to be merged.
const ALIKE: usize = 8;
/// Interval in which equal errors are merged, in milliseconds.
const WHILE: u64 = 10_000;
/// Limit of a reason, in bytes.
const LONGEST_REASON: usize = 300;

/// Side on which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An origin failed, or answered with a status of 500 or more. Clients may have got a stored copy.
    Origin,
    /// A client got an error generated here.
    Answer,
}

/// An error, with its repetitions in short order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentError {
    /// Side on which it occurred.
    pub kind: ErrorKind,
    /// Time of its last occurrence.
    pub at: Time,
    /// Number of occurrences.
    pub count: u64,
    /// The name of the route, if it was known.
    pub route: Option<String>,
    /// The name of the upstream group, of an origin's.
    pub upstream: Option<String>,
    /// URL of its last occurrence, possibly cut; `None` if the request could not be parsed.
    pub url: Option<String>,
    /// The status that the origin sent, or the client got.
    pub status: Option<u16>,
    /// Reason.
    pub reason: String,
}

/// Latest errors of each kind, so that malformed requests of clients displace no failure of an origin.
#[derive(Default)]
pub(super) struct Errors {
    origin: VecDeque<RecentError>,
    answer: VecDeque<RecentError>,
}

impl Errors {
    pub(super) fn add(&mut self, mut error: RecentError) {
        cut(&mut error.reason);
        let kept = match error.kind {
            ErrorKind::Origin => &mut self.origin,
            ErrorKind::Answer => &mut self.answer,
        };
        let like = kept
            .iter_mut()
            .rev()
            .take(ALIKE)
            .find(|kept| kept.is_like(&error));
        if let Some(like) = like {
            let count = like.count + error.count;
            *like = RecentError { count, ..error };
            return;
        }
        if kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back(error);
    }

    /// The latest first.
    pub(super) fn latest(&self, limit: usize) -> Vec<RecentError> {
        let mut all: Vec<_> = self.origin.iter().chain(&self.answer).collect();
        all.sort_by_key(|error| std::cmp::Reverse(error.at));
        all.into_iter().take(limit).cloned().collect()
    }
}

impl RecentError {
    /// Returns true if the other error is a repetition.
    fn is_like(&self, other: &Self) -> bool {
        other.at.since(self.at) < WHILE
            && self.status == other.status
            && self.reason == other.reason
            && self.route == other.route
            && self.upstream == other.upstream
    }
}

fn cut(reason: &mut String) {
    if reason.len() > LONGEST_REASON {
        reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind, second: u64, reason: &str) -> RecentError {
        RecentError {
            kind,
            at: Time::from_millis(second * 1000),
            count: 1,
            route: Some("all".to_owned()),
            upstream: None,
            url: Some(format!("http://a/{second}")),
            status: Some(502),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_storm_of_the_same_is_one_and_none_of_a_kind_hides_the_other() {
        let mut errors = Errors::default();
        errors.add(error(
            ErrorKind::Origin,
            1,
            "the origin closed the connection",
        ));
        for second in 1..=5 {
            for _ in 0..1000 {
                errors.add(error(ErrorKind::Answer, second, "timeout"));
            }
        }
        let latest = errors.latest(100);
        assert_eq!(latest.len(), 2);
        assert_eq!(
            (latest[0].count, latest[0].url.as_deref()),
            (5000, Some("http://a/5"))
        );
        errors.add(error(ErrorKind::Answer, 16, "timeout"));
        assert_eq!(
            errors.latest(100).len(),
            3,
            "it is another one after a while"
        );
        for number in 0..10_000 {
            errors.add(error(
                ErrorKind::Answer,
                20,
                &format!("{number}{}", "é".repeat(100_000)),
            ));
        }
        let latest = errors.latest(1000);
        assert_eq!(latest.len(), MOST + 1);
        assert!(
            latest
                .iter()
                .all(|error| error.reason.len() <= LONGEST_REASON)
        );
        assert_eq!(
            latest.last().map(|error| error.kind),
            Some(ErrorKind::Origin)
        );
        assert_eq!(errors.latest(3).len(), 3);
    }
}
