//! Clock of a shared tier. Where that of this machine is wrong, ages of records are measured by the tier's, so that
//! processes on several machines agree on them.

use std::sync::atomic::{AtomicI64, Ordering};

use microcache_policy::Time;

use crate::clock::{Clock, Epoch};

/// Difference, in milliseconds, up to which the clock of this machine counts as right: it is more precise than what is
/// known of the tier's.
const TOLERANCE: u64 = 2000;
/// No date is known.
const UNKNOWN: i64 = i64::MIN;

/// Clock of a shared tier, as far as this process knows it.
#[derive(Debug)]
pub struct TierClock {
    own: Clock,
    /// Lead of the tier's date over the time line of this process, in milliseconds.
    lead: AtomicI64,
}

impl TierClock {
    /// Creates a clock that is compared with the time line of this process.
    pub const fn new(own: Clock) -> Self {
        Self {
            own,
            lead: AtomicI64::new(UNKNOWN),
        }
    }

    /// Notes a date that the tier has just sent. Small changes are errors of measurement.
    pub fn note(&self, date: Time) {
        let own = self.own.now().as_millis().cast_signed();
        let lead = date.as_millis().cast_signed().saturating_sub(own);
        if lead.abs_diff(self.lead.load(Ordering::Relaxed)) > TOLERANCE {
            self.lead.store(lead, Ordering::Relaxed);
        }
    }

    /// Returns the reference for timestamps in the tier's records.
    pub fn epoch(&self) -> Epoch {
        self.differing().unwrap_or_else(|| Epoch::now().anywhere())
    }

    /// Returns a remark for the operator if one of the two clocks is wrong.
    pub fn advice(&self) -> Option<String> {
        let ahead = Epoch::now().ahead_of(&self.differing()?);
        Some(format!(
            "the clock of this machine is {} s {} that of the server: set the wrong one",
            ahead.unsigned_abs().div_ceil(1000),
            if ahead > 0 { "ahead of" } else { "behind" },
        ))
    }

    /// The reference by the tier's clock, if that is known and another one.
    fn differing(&self) -> Option<Epoch> {
        let lead = self.lead.load(Ordering::Relaxed);
        let tiers = Epoch::of_lead(lead);
        let is_other = Epoch::now().ahead_of(&tiers).unsigned_abs() > TOLERANCE;
        (lead != UNKNOWN && is_other).then_some(tiers)
    }
}

impl Default for TierClock {
    fn default() -> Self {
        Self::new(Clock::start())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_tiers_where_the_clocks_differ() {
        for (ahead, is_other) in [(0, false), (900, false), (600_000, true), (-600_000, true)] {
            let clock = TierClock::default();
            assert_eq!(clock.epoch(), Epoch::now().anywhere(), "nothing is known");
            let now = clock.own.now();
            clock.note(now.shifted(-ahead));
            let kept = clock.epoch();
            let expected = if is_other {
                now.shifted(-ahead)
            } else {
                clock.own.date()
            };
            let error = kept.date_of(now).as_millis().abs_diff(expected.as_millis());
            assert!(error < 200, "{ahead}: {error}");
            clock.note(now.shifted(1000 - ahead));
            assert_eq!(clock.epoch(), kept, "an error of measurement");
        }
    }

    #[test]
    fn the_operator_reads_which_clock_is_ahead() {
        for (ahead, expected) in [(600_500, "601 s ahead of"), (-600_500, "601 s behind")] {
            let clock = TierClock::default();
            clock.note(clock.own.date().shifted(-ahead));
            let advice = clock.advice().expect("they differ");
            assert!(advice.contains(expected), "{advice}");
        }
    }

    #[test]
    fn no_date_is_too_large() {
        let clock = TierClock::default();
        for date in [0, u64::MAX, i64::MAX.unsigned_abs(), 1 << 63] {
            clock.note(Time::from_millis(date));
            let _ = (clock.advice(), clock.epoch().date_of(clock.own.now()));
        }
    }
}
