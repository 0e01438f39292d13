//! The three date forms of RFC 9110 §5.6.7, relative to now.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sun, 06 Nov 1994 08:49:37 GMT`, so many seconds from now.
pub(crate) fn http_date(from_now: i64) -> String {
    let d = Civil::from_now(from_now);
    format!(
        "{}, {:02} {} {:04} {} GMT",
        &d.weekday[..3],
        d.day,
        d.month,
        d.year,
        d.time
    )
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`, so many seconds from now.
pub(crate) fn rfc850_date(from_now: i64) -> String {
    let d = Civil::from_now(from_now);
    format!(
        "{}, {:02}-{}-{:02} {} GMT",
        d.weekday,
        d.day,
        d.month,
        d.year % 100,
        d.time
    )
}

/// `Sun Nov  6 08:49:37 1994`, so many seconds from now.
pub(crate) fn asctime(from_now: i64) -> String {
    let d = Civil::from_now(from_now);
    format!(
        "{} {} {:>2} {} {:04}",
        &d.weekday[..3],
        d.month,
        d.day,
        d.time,
        d.year
    )
}

struct Civil {
    weekday: &'static str,
    day: u64,
    month: &'static str,
    year: u64,
    time: String,
}

impl Civil {
    fn from_now(seconds: i64) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let at = now.checked_add_signed(seconds).unwrap();
        let (mut days, second) = (at / 86_400, at % 86_400);
        let weekday = DAYS[(days % 7) as usize];
        let mut year = 1970;
        while days >= year_length(year) {
            days -= year_length(year);
            year += 1;
        }
        let mut month = 0;
        while days >= month_length(month, year) {
            days -= month_length(month, year);
            month += 1;
        }
        let time = format!(
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        );
        Self {
            weekday,
            day: days + 1,
            month: MONTHS[month],
            year,
            time,
        }
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn year_length(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn month_length(month: usize, year: u64) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}
