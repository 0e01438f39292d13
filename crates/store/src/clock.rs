//! Time sources: a monotonic time line for ages, unaffected by changes of the wall clock, and dates
//! according to the current wall clock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use microcache_policy::{Millis, Time};
use xxhash_rust::xxh3::xxh3_64;

use crate::poll_clock;

/// Deviation of the wall clock, in milliseconds, up to which it does not count as set: room for clock
/// slewing and for delays between two clock readings.
const STEP: u64 = 20;

static MACHINE: LazyLock<SystemClocks> = LazyLock::new(SystemClocks::start);

/// Time line of this process: the date at its start plus the time since then, including system suspend.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Tokio's instant, so that tests can pause and advance it.
    started: tokio::time::Instant,
    /// Position on the time line at that instant, excluding suspend.
    base: Time,
}

impl Clock {
    /// Starts at the current position of the time line.
    pub fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
            base: MACHINE.awake(),
        }
    }

    /// Starts at a date of its own, for simulations: only tokio's time moves it. From then on, no clock of this
    /// process notices that the system's was set or suspended.
    pub fn simulated(date: Time) -> Self {
        MACHINE.is_simulated.store(true, Ordering::Relaxed);
        Self {
            started: tokio::time::Instant::now(),
            base: date,
        }
    }

    /// Returns the position of the running poll on the time line ([`poll_clock::now`]).
    #[inline]
    pub fn now(&self) -> Time {
        self.at(poll_clock::now())
    }

    /// Returns the current position on the time line, which becomes that of the running poll.
    #[inline]
    pub fn read(&self) -> Time {
        self.at(poll_clock::read())
    }

    #[inline]
    fn at(&self, time: tokio::time::Instant) -> Time {
        let awake = time.saturating_duration_since(self.started);
        let awake = self.base.plus(awake.as_millis() as u64);
        awake.plus(MACHINE.slept(awake))
    }

    /// Returns the current date.
    pub fn date(&self) -> Time {
        date(self.now())
    }
}

/// Converts a position on the time line to a date by the current wall clock.
pub fn date(time: Time) -> Time {
    time.shifted(MACHINE.set_by.load(Ordering::Relaxed))
}

/// Reference for timestamps in stored records: system uptime for readers on the same boot of the same
/// machine, otherwise the date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Offset from the time line to the date, in milliseconds.
    date: i64,
    /// Hash of machine and boot; 0 if unknown.
    boot: u64,
    /// Offset from the time line to the system uptime, in milliseconds.
    uptime: i64,
}

impl Epoch {
    /// Returns the current reference of this process.
    pub fn now() -> Self {
        Self {
            date: MACHINE.set_by.load(Ordering::Relaxed),
            boot: MACHINE.boot,
            uptime: MACHINE.uptime,
        }
    }

    /// Returns the reference after the wall clock has been set by `by` milliseconds.
    #[cfg(test)]
    pub(crate) const fn set_by(self, by: i64) -> Self {
        Self {
            date: self.date + by,
            ..self
        }
    }

    /// Returns the reference for records read on other machines, which contains the date alone.
    #[must_use]
    pub const fn anywhere(self) -> Self {
        Self { boot: 0, ..self }
    }

    /// Returns the reference by a clock that is ahead of the time line by `lead` milliseconds, for records read on
    /// other machines.
    pub(crate) const fn of_lead(lead: i64) -> Self {
        Self {
            date: lead,
            boot: 0,
            uptime: 0,
        }
    }

    /// Returns by how many milliseconds dates of this reference are ahead of those of another.
    pub(crate) const fn ahead_of(&self, other: &Self) -> i64 {
        self.date.saturating_sub(other.date)
    }

    /// Converts a position on the time line to the date to be stored.
    pub const fn date_of(&self, time: Time) -> Time {
        time.shifted(self.date)
    }

    /// Returns the numbers to be stored with the date: boot, and offset from date to uptime.
    pub const fn to_numbers(self) -> [u64; 2] {
        if self.boot == 0 {
            return [0, 0];
        }
        let uptime = self.uptime.wrapping_sub(self.date).cast_unsigned();
        [self.boot, uptime]
    }

    /// Converts a stored date with its numbers to a position on the time line.
    pub const fn moment(&self, date: Time, [boot, uptime]: [u64; 2]) -> Time {
        if boot == 0 || boot != self.boot {
            return date.shifted(self.date.saturating_neg());
        }
        let from_date = uptime.cast_signed().saturating_sub(self.uptime);
        date.shifted(from_date)
    }
}

/// Clocks of the system, read at most once per millisecond. Suspend takes longer than that, so no code can
/// observe it between two readings.
#[derive(Debug)]
struct SystemClocks {
    /// Instant of the first reading.
    began: Instant,
    /// Date of the first reading, where the time line begins.
    date: Time,
    /// Lead of `CLOCK_BOOTTIME` over `CLOCK_MONOTONIC` at that instant.
    ahead: Millis,
    boot: u64,
    uptime: i64,
    /// Position of the latest reading.
    looked: AtomicU64,
    slept: AtomicU64,
    /// Change of the wall clock since the start, in milliseconds.
    set_by: AtomicI64,
    /// The clocks of the system are not read.
    is_simulated: AtomicBool,
}

impl SystemClocks {
    fn start() -> Self {
        let (began, date) = (Instant::now(), system_time());
        let uptime = uptime().cast_signed() - date.as_millis().cast_signed();
        Self {
            began,
            date,
            ahead: ahead(),
            boot: boot(),
            uptime,
            looked: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            set_by: AtomicI64::new(0),
            is_simulated: AtomicBool::new(false),
        }
    }

    /// Position on the time line, excluding suspend.
    fn awake(&self) -> Time {
        self.date.plus(self.began.elapsed().as_millis() as u64)
    }

    /// Returns the time spent suspended up to a position that excludes suspend.
    fn slept(&self, awake: Time) -> Millis {
        if self.looked.load(Ordering::Relaxed) != awake.as_millis() {
            self.look(awake, ahead(), system_time());
        }
        self.slept.load(Ordering::Relaxed)
    }

    #[cold]
    fn look(&self, awake: Time, ahead: Millis, date: Time) {
        if self.is_simulated.load(Ordering::Relaxed) {
            return;
        }
        self.looked.store(awake.as_millis(), Ordering::Relaxed);
        // A thread preempted between the two clock readings measures too little, never too much.
        let seen = ahead.saturating_sub(self.ahead);
        let slept = self.slept.fetch_max(seen, Ordering::Relaxed).max(seen);
        let now = self.awake().plus(slept);
        let set_by = date.as_millis().cast_signed() - now.as_millis().cast_signed();
        if set_by.abs_diff(self.set_by.load(Ordering::Relaxed)) > STEP {
            self.set_by.store(set_by, Ordering::Relaxed);
        }
    }
}

/// Reads the wall clock.
pub(crate) fn system_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Time::from_millis(since.map_or(0, |since| since.as_millis() as u64))
}

/// Lead of `CLOCK_BOOTTIME` over `CLOCK_MONOTONIC`: the total time spent suspended.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn ahead() -> Millis {
    use rustix::time::{ClockId, clock_gettime};

    let up = millis(clock_gettime(ClockId::Boottime));
    up.saturating_sub(millis(clock_gettime(ClockId::Monotonic)))
}

/// System uptime, including suspend.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn uptime() -> Millis {
    use rustix::time::{ClockId, clock_gettime};

    millis(clock_gettime(ClockId::Boottime))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn millis(time: rustix::time::Timespec) -> Millis {
    let seconds = time.tv_sec.unsigned_abs().saturating_mul(1000);
    seconds.saturating_add(time.tv_nsec.unsigned_abs() / 1_000_000)
}

/// Other systems do not report the time spent suspended.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn ahead() -> Millis {
    0
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn uptime() -> Millis {
    0
}

/// Returns a hash that identifies the boot and the time namespace; 0 if the system provides no boot id.
fn boot() -> u64 {
    let Ok(mut id) = std::fs::read("/proc/sys/kernel/random/boot_id") else {
        return 0;
    };
    id.extend(std::fs::read("/proc/self/timens_offsets").unwrap_or_default());
    xxh3_64(&id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    #[test]
    fn a_clock_that_is_set_moves_dates_and_no_ages() {
        let machine = SystemClocks::start();
        let look = |set: Time| machine.look(machine.awake(), machine.ahead, set);
        look(machine.awake().plus(2 * HOUR));
        let set_by = machine.set_by.load(Ordering::Relaxed).unsigned_abs();
        assert!(set_by.abs_diff(2 * HOUR) <= STEP, "{set_by}");
        assert_eq!(machine.slept.load(Ordering::Relaxed), 0);
        look(machine.awake().before(HOUR));
        assert!(machine.set_by.load(Ordering::Relaxed) < 0);
        look(machine.awake());
        assert!(machine.set_by.load(Ordering::Relaxed).unsigned_abs() <= STEP);
        assert_eq!(machine.slept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn sleep_counts_once_and_is_no_setting() {
        let machine = SystemClocks::start();
        for (slept, expected) in [(0, 0), (HOUR, HOUR), (HOUR - 7, HOUR), (2 * HOUR, 2 * HOUR)] {
            let date = machine.awake().plus(expected);
            machine.look(machine.awake(), machine.ahead + slept, date);
            assert_eq!(machine.slept.load(Ordering::Relaxed), expected);
            assert!(machine.set_by.load(Ordering::Relaxed).unsigned_abs() <= STEP);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tests_set_the_time() {
        let clock = Clock::start();
        let (began, date) = (clock.now(), clock.date());
        assert!(date.as_millis().abs_diff(system_time().as_millis()) < HOUR);
        tokio::time::advance(std::time::Duration::from_hours(1)).await;
        assert_eq!(clock.now().since(began), HOUR);
        assert!(clock.date().since(date).abs_diff(HOUR) <= STEP);
    }

    #[test]
    fn a_moment_is_read_by_the_uptime_on_its_boot_and_by_the_date_elsewhere() {
        let epoch = |boot, date: i64, uptime| Epoch { date, boot, uptime };
        let moment = Time::from_millis(10 * HOUR);
        // The writer's wall clock was set by an hour after its start, the reader started afterwards.
        let writer = epoch(7, 3_600_000, -1_000);
        let (written, numbers) = (writer.date_of(moment), writer.to_numbers());
        assert_eq!(written, Time::from_millis(11 * HOUR));
        assert_eq!(writer.moment(written, numbers), moment, "by itself");
        let set_again = epoch(7, -60_000, -1_000);
        assert_eq!(set_again.moment(written, numbers), moment, "set since");
        let later = epoch(7, 0, -5_000);
        let here = later.moment(written, numbers);
        assert_eq!(here, moment.plus(4_000), "the same uptime");
        for other in [epoch(8, -60_000, -1_000), epoch(0, -60_000, 0)] {
            assert_eq!(other.moment(written, numbers), written.plus(60_000));
        }
        let plain = writer.anywhere();
        assert_eq!(plain.to_numbers(), [0, 0]);
        assert_eq!(later.moment(written, plain.to_numbers()), written);
    }

    #[test]
    fn no_numbers_are_too_large() {
        for number in [0, 1, u64::MAX, i64::MAX.unsigned_abs(), 1 << 63] {
            let mine = Epoch {
                date: i64::MIN,
                boot: 7,
                uptime: i64::MIN,
            };
            let _ = mine.moment(Time::from_millis(number), [7, number]);
            let _ = mine.moment(Time::from_millis(number), [0, number]);
        }
    }
}
