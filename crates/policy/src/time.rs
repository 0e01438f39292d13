//! Points in time. The core is told what time it is; it never asks.

/// A span in milliseconds.
pub type Millis = u64;

/// A point in time, in milliseconds. Arithmetic saturates.
///
/// Ages and deadlines are differences of points on the time line of one process, which no setting of the
/// machine's clock bends. Dates (of fields, of logs) are milliseconds since the Unix epoch. The two
/// agree until the clock is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// So many milliseconds after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// So many seconds after the epoch.
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

    /// This long after.
    #[must_use]
    pub const fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// The moment that lies so long before this one; the beginning of time if there is none.
    #[must_use]
    pub const fn before(self, span: Millis) -> Self {
        Self::from_millis(self.as_millis().saturating_sub(span))
    }

    /// So many milliseconds later, or earlier.
    #[must_use]
    pub const fn shifted(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }

    /// How long ago `earlier` was; nothing if it lies ahead.
    pub const fn since(self, earlier: Self) -> Millis {
        self.0.saturating_sub(earlier.0)
    }
}

/// When a response was asked for and received (RFC 9111 §4.2.3).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When its request was sent.
    pub request: Time,
    /// When its head was received.
    pub response: Time,
    /// The same moment as a date, by the machine's clock as it was then. `Date` and `Expires` are
    /// compared with it.
    pub date: Time,
}

impl Times {
    /// Of a response that came at once, on a machine whose clock has not been set since.
    pub const fn at(time: Time) -> Self {
        Self {
            request: time,
            response: time,
            date: time,
        }
    }
}
