//! Dates: what httpdate reads, we read as the same; what we write, both read back.

#![no_main]

use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use microcache_policy::{Time, date};

/// The last second that has a date. A leap second behind it is the only way to get beyond.
const LAST: Time = Time::from_secs(253_402_300_799);
const NOW: Time = Time::from_secs(1_800_000_000);

fuzz_target!(|input: &[u8]| {
    let ours = date::parse(input, NOW);
    let theirs = std::str::from_utf8(input)
        .ok()
        // Httpdate trims, and values of fields come without the white space around them.
        .filter(|text| text.trim() == *text)
        .and_then(|text| httpdate::parse_http_date(text).ok());
    // The century of a two-digit year is relative to now for us, and fixed for httpdate.
    let two_digits = input.contains(&b'-');
    if let Some(theirs) = theirs.filter(|_| !two_digits) {
        let seconds = theirs
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        assert_eq!(ours, Some(Time::from_secs(seconds)));
    }
    if let Some(time) = ours {
        let time = time.min(LAST);
        let written = date::format(time);
        assert_eq!(date::parse(&written, NOW), Some(time));
        let text = std::str::from_utf8(&written).expect("ASCII");
        let theirs = httpdate::parse_http_date(text).expect("a date");
        assert_eq!(theirs, UNIX_EPOCH + Duration::from_secs(time.as_secs()));
    }
});
