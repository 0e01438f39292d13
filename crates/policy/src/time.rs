//! Points in time. This crate reads no clock: the time is an argument.

/// A span in milliseconds.
pub type Millis = u64;

/// A point in time, in milliseconds. Arithmetic saturates.
///
/// Ages and deadlines are differences on the monotonic clock of one process. Dates (of fields, of logs) are
/// milliseconds since the Unix epoch. The two agree until the system clock is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The time this many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The time this many seconds after the epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// The time later by `span`.
    #[must_use]
    pub const fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// The time earlier by `span`; the epoch if that is before it.
    #[must_use]
    pub const fn before(self, span: Millis) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(span))
    }

    /// The time shifted by this many milliseconds, which may be negative.
    #[must_use]
    pub const fn shifted(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }

    /// The span since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// The times of a request and its response (RFC 9111 §4.2.3).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time at which the request was sent.
    pub request: Time,
    /// The time at which the head of the response was received.
    pub response: Time,
    /// The same time as a date of the system clock, for comparison with `Date` and `Expires`.
    pub date: Time,
}

impl Times {
    /// The times of a response that was received at once, by a system clock that has not been set since.
    pub const fn at(time: Time) -> Self {
        Self {
            request: time,
            response: time,
            date: time,
        }
    }
}
