//! What time it is: for ages, which no setting of the machine's clock changes, and as a date, by
//! that clock as it is set now.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use microcache_policy::{Millis, Time};
use xxhash_rust::xxh3::xxh3_64;

/// A wall clock that is off by less has not been set: this much is the pace of a clock that is being
/// corrected, and how late a thread may be between two looks at clocks.
const STEP: u64 = 20;

static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::start);

/// The time line of this process: the date at its start, and from there the time that has passed,
/// with that in which the machine slept.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Tests pause and advance it.
    started: tokio::time::Instant,
    /// Where it was then, but for the sleep.
    base: Time,
}

impl Clock {
    /// Starts at the machine's time.
    pub fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
            base: MACHINE.awake(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        let awake = self.base.plus(self.started.elapsed().as_millis() as u64);
        awake.plus(MACHINE.slept(awake))
    }

    /// The date now.
    pub fn date(&self) -> Time {
        date(self.now())
    }
}

/// A moment of the time line as a date, by the wall clock as it is set now.
pub fn date(time: Time) -> Time {
    time.shifted(MACHINE.set_by.load(Ordering::Relaxed))
}

/// How the moments of a record are read: in what the machine has been up, by those who run on the same
/// boot of it, and else by the date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// What leads from the time line to the date.
    date: i64,
    /// Which boot of which machine; 0 if that is not known.
    boot: u64,
    /// What leads from the time line to how long the machine has been up.
    uptime: i64,
}

impl Epoch {
    /// This process's now.
    pub fn now() -> Self {
        Self {
            date: MACHINE.set_by.load(Ordering::Relaxed),
            boot: MACHINE.boot,
            uptime: MACHINE.uptime,
        }
    }

    /// The same after the wall clock has been set.
    #[cfg(test)]
    pub(crate) const fn set_by(self, by: i64) -> Self {
        Self {
            date: self.date + by,
            ..self
        }
    }

    /// The same for a record that other machines read: it says the date alone.
    #[must_use]
    pub const fn anywhere(self) -> Self {
        Self { boot: 0, ..self }
    }

    /// A moment as it is written.
    pub const fn date_of(&self, time: Time) -> Time {
        time.shifted(self.date)
    }

    /// What is written beside: the boot, and what leads from the date to the uptime.
    pub const fn to_numbers(self) -> [u64; 2] {
        if self.boot == 0 {
            return [0, 0];
        }
        let uptime = self.uptime.wrapping_sub(self.date).cast_unsigned();
        [self.boot, uptime]
    }

    /// The moment that a date means which was written with these numbers.
    pub const fn moment(&self, date: Time, [boot, uptime]: [u64; 2]) -> Time {
        if boot == 0 || boot != self.boot {
            return date.shifted(self.date.saturating_neg());
        }
        let from_date = uptime.cast_signed().saturating_sub(self.uptime);
        date.shifted(from_date)
    }
}

/// The machine's clocks, looked at once in a millisecond at most: before the next one nothing that runs
/// can see that the machine slept, for to freeze and thaw its processes takes longer.
#[derive(Debug)]
struct Machine {
    /// When it was looked at first.
    began: Instant,
    /// The date then, at which the time line begins.
    date: Time,
    /// What the boot's clock was ahead of the one that stops while the machine sleeps.
    ahead: Millis,
    boot: u64,
    uptime: i64,
    /// The moment of the latest look.
    looked: AtomicU64,
    slept: AtomicU64,
    /// By how much the wall clock has been set since.
    set_by: AtomicI64,
}

impl Machine {
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
        }
    }

    /// The time line without the sleep.
    fn awake(&self) -> Time {
        self.date.plus(self.began.elapsed().as_millis() as u64)
    }

    /// For how long the machine has slept, at a moment of the time line without the sleep.
    fn slept(&self, awake: Time) -> Millis {
        if self.looked.load(Ordering::Relaxed) != awake.as_millis() {
            self.look(awake, ahead(), system_time());
        }
        self.slept.load(Ordering::Relaxed)
    }

    #[cold]
    fn look(&self, awake: Time, ahead: Millis, date: Time) {
        self.looked.store(awake.as_millis(), Ordering::Relaxed);
        // A thread that has to wait between the two clocks sees too little, never too much.
        let seen = ahead.saturating_sub(self.ahead);
        let slept = self.slept.fetch_max(seen, Ordering::Relaxed).max(seen);
        let now = self.awake().plus(slept);
        let set_by = date.as_millis().cast_signed() - now.as_millis().cast_signed();
        if set_by.abs_diff(self.set_by.load(Ordering::Relaxed)) > STEP {
            self.set_by.store(set_by, Ordering::Relaxed);
        }
    }
}

fn system_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Time::from_millis(since.map_or(0, |since| since.as_millis() as u64))
}

/// What the boot's clock is ahead of the one that stops while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn ahead() -> Millis {
    use rustix::time::{ClockId, clock_gettime};

    let up = millis(clock_gettime(ClockId::Boottime));
    up.saturating_sub(millis(clock_gettime(ClockId::Monotonic)))
}

/// For how long the machine has been up, with its sleep.
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

/// Elsewhere the time in which the machine sleeps is not seen.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn ahead() -> Millis {
    0
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
const fn uptime() -> Millis {
    0
}

/// This boot of this machine, as a number; 0 where the system has no name for it. A container may have a
/// clock of its own.
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
        let machine = Machine::start();
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
        let machine = Machine::start();
        for (slept, expected) in [(0, 0), (HOUR, HOUR), (HOUR - 7, HOUR), (2 * HOUR, 2 * HOUR)] {
            let date = machine.awake().plus(expected);
            machine.look(machine.awake(), machine.ahead + slept, date);
            assert_eq!(machine.slept.load(Ordering::Relaxed), expected);
            assert!(machine.set_by.load(Ordering::Relaxed).unsigned_abs() <= STEP);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tests_decide_what_time_it_is() {
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
        // The writer's clock was set by an hour after its start, the reader began when it was right.
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
