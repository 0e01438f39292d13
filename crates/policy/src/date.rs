//! HTTP dates in their three forms (RFC 9110 §5.6.7).

use crate::time::Time;

const DAYS: [[u8; 3]; 7] = [
    *b"Sun", *b"Mon", *b"Tue", *b"Wed", *b"Thu", *b"Fri", *b"Sat",
];
const LONG_DAYS: [&[u8]; 7] = [
    b"Sunday",
    b"Monday",
    b"Tuesday",
    b"Wednesday",
    b"Thursday",
    b"Friday",
    b"Saturday",
];
const MONTHS: [[u8; 3]; 12] = [
    *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct",
    *b"Nov", *b"Dec",
];
const SECONDS_PER_DAY: i64 = 86_400;
/// The last second a four-digit year can express.
const LAST_SECOND: u64 = 253_402_300_799;

/// Parses a date in any of the three forms. Names match in any case (RFC 9111 §4.2); everything else is strict. `now`
/// decides the century of a two-digit year. A date before 1970 becomes [`Time`] zero. Returns `None` if the value is
/// malformed.
pub fn parse(value: &[u8], now: Time) -> Option<Time> {
    let seconds = imf_fixdate(value)
        .or_else(|| rfc850(value, now))
        .or_else(|| asctime(value))?;
    Some(Time::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Formats a date as `Sun, 06 Nov 1994 08:49:37 GMT`. A time after the year 9999 becomes the last second of that year.
pub fn format(time: Time) -> [u8; 29] {
    let seconds = time.as_secs().min(LAST_SECOND);
    let days = seconds / SECONDS_PER_DAY.unsigned_abs();
    let clock = seconds % SECONDS_PER_DAY.unsigned_abs();
    let (year, month, day) = civil_from_days(days.cast_signed());
    let mut out = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    // 1 January 1970 was a Thursday.
    out[..3].copy_from_slice(&DAYS[(days + 4) as usize % 7]);
    out[8..11].copy_from_slice(&MONTHS[month.unsigned_abs() as usize - 1]);
    put_digits(&mut out[5..7], day.unsigned_abs());
    put_digits(&mut out[12..16], year.unsigned_abs());
    put_digits(&mut out[17..19], clock / 3600);
    put_digits(&mut out[20..22], clock / 60 % 60);
    put_digits(&mut out[23..25], clock % 60);
    out
}

fn put_digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(value: &[u8]) -> Option<i64> {
    let mut text = Text(value);
    text.short_name(&DAYS)?;
    text.literal(b", ")?;
    let day = text.digits::<2>()?;
    text.literal(b" ")?;
    let month = text.short_name(&MONTHS)? + 1;
    text.literal(b" ")?;
    let year = text.digits::<4>()?;
    text.literal(b" ")?;
    let clock = text.clock()?;
    text.literal(b" GMT")?;
    text.end()?;
    seconds(year, month, day, clock)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(value: &[u8], now: Time) -> Option<i64> {
    let mut text = Text(value);
    text.one_of(&LONG_DAYS)?;
    text.literal(b", ")?;
    let day = text.digits::<2>()?;
    text.literal(b"-")?;
    let month = text.short_name(&MONTHS)? + 1;
    text.literal(b"-")?;
    let short = text.digits::<2>()?;
    text.literal(b" ")?;
    let clock = text.clock()?;
    text.literal(b" GMT")?;
    text.end()?;
    let (this_year, ..) =
        civil_from_days(now.as_secs().min(LAST_SECOND).cast_signed() / SECONDS_PER_DAY);
    seconds(century_of(short, this_year), month, day, clock)
}

/// The full year. More than fifty years ahead means the most recent past year with the same two digits (RFC 9110
/// §5.6.7).
const fn century_of(short: i64, this_year: i64) -> i64 {
    let year = this_year - this_year % 100 + short;
    if year > this_year + 50 {
        year - 100
    } else if year + 50 < this_year {
        year + 100
    } else {
        year
    }
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(value: &[u8]) -> Option<i64> {
    let mut text = Text(value);
    text.short_name(&DAYS)?;
    text.literal(b" ")?;
    let month = text.short_name(&MONTHS)? + 1;
    text.literal(b" ")?;
    let day = match text.literal(b" ") {
        Some(()) => text.digits::<1>()?,
        None => text.digits::<2>()?,
    };
    text.literal(b" ")?;
    let clock = text.clock()?;
    text.literal(b" ")?;
    let year = text.digits::<4>()?;
    text.end()?;
    seconds(year, month, day, clock)
}

fn seconds(year: i64, month: usize, day: i64, clock: i64) -> Option<i64> {
    let month = i64::try_from(month).ok()?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=last)
        .contains(&day)
        .then(|| days_from_civil(year, month, day) * SECONDS_PER_DAY + clock)
}

/// Days since 1970-01-01 in the Gregorian calendar, counting years from March so that the leap day
/// comes last.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`]: year, month from 1, day from 1.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

/// The unparsed rest of a date.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn literal<const N: usize>(&mut self, expected: &[u8; N]) -> Option<()> {
        let (start, rest) = self.0.split_first_chunk::<N>()?;
        // In lower case, as few dates are: one comparison suffices for the others.
        let is_same = start == expected || start.eq_ignore_ascii_case(expected);
        is_same.then(|| self.0 = rest)
    }

    fn one_of(&mut self, names: &[&[u8]]) -> Option<()> {
        let is_next = |name: &&&[u8]| {
            let start = self.0.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let name = names.iter().find(is_next)?;
        self.0 = &self.0[name.len()..];
        Some(())
    }

    fn short_name<const N: usize>(&mut self, names: &[[u8; 3]; N]) -> Option<usize> {
        let (found, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        // Letters in any case, and nothing else, become these lower-case letters.
        let lower = |[a, b, c]: [u8; 3]| u32::from_le_bytes([a, b, c, 0]) | 0x0020_2020;
        let found = lower(*found);
        names.iter().position(|name| lower(*name) == found)
    }

    fn digits<const N: usize>(&mut self) -> Option<i64> {
        let (digits, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        let are_digits = digits.iter().all(u8::is_ascii_digit);
        are_digits.then(|| {
            let digit = |byte: &u8| i64::from(byte - b'0');
            digits
                .iter()
                .fold(0, |value, byte| value * 10 + digit(byte))
        })
    }

    /// Parses `08:49:37` into the second of the day. A leap second is allowed.
    fn clock(&mut self) -> Option<i64> {
        let hour = self.digits::<2>()?;
        self.literal(b":")?;
        let minute = self.digits::<2>()?;
        self.literal(b":")?;
        let second = self.digits::<2>()?;
        (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
    }

    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000); // January 2027

    fn check(value: &str, expected: Option<u64>) {
        assert_eq!(
            parse(value.as_bytes(), NOW),
            expected.map(Time::from_secs),
            "{value}"
        );
    }

    #[test]
    fn all_three_forms_are_read() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
        check("Wed Nov 16 08:49:37 1994", Some(784_975_777));
        check("sun, 06 nov 1994 08:49:37 gmt", Some(784_111_777));
        check("Thu, 29 Feb 2024 00:00:00 GMT", Some(1_709_164_800));
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        check("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_800));
        check("Fri, 31 Dec 9999 23:59:59 GMT", Some(LAST_SECOND));
    }

    #[test]
    fn before_1970_is_long_past() {
        check("Fri, 01 Jan 1960 00:00:00 GMT", Some(0));
        check("Mon, 01 Jan 0001 00:00:00 GMT", Some(0));
    }

    #[test]
    fn a_two_digit_year_is_never_more_than_fifty_years_ahead() {
        check("Friday, 01-Jan-77 00:00:00 GMT", Some(3_376_684_800)); // 2077
        check("Sunday, 01-Jan-78 00:00:00 GMT", Some(252_460_800)); // 1978
        check("Saturday, 01-Jan-00 00:00:00 GMT", Some(946_684_800));
        assert_eq!(century_of(3, 2098), 2103);
    }

    #[test]
    fn anything_else_is_no_date() {
        for value in [
            "",
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Abc 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Wed, 29 Feb 2023 00:00:00 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "784111777",
        ] {
            check(value, None);
        }
    }

    #[test]
    fn dates_are_written_in_the_preferred_form() {
        for (seconds, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
            (u64::MAX / 1000, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            let written = format(Time::from_secs(seconds));
            assert_eq!(std::str::from_utf8(&written), Ok(expected));
        }
    }
}
