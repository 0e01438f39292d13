//! W3C Trace Context: by what an application knows which requests belong together.
//!
//! A proxy that takes no part in a trace passes both fields on as they are, so that the application's
//! spans have the client's as their parent. What is no valid `traceparent` is not passed on, and neither
//! is the `tracestate` beside it (Trace Context §4.3): the application then begins a trace of its own.

use crate::Fields;

/// The fields of a trace.
pub const TRACE_FIELDS: [&str; 2] = ["traceparent", "tracestate"];

/// Whether the fields of a trace are passed on: there is one `traceparent`, and it is valid.
pub fn trace_travels(request: Fields<'_>) -> bool {
    let mut lines = request.all("traceparent");
    matches!((lines.next(), lines.next()), (Some(line), None) if is_valid(line.trim_ascii()))
}

/// Trace Context §3.2.2: version, trace, parent and flags. Versions to come may have more behind them.
fn is_valid(line: &[u8]) -> bool {
    let mut parts = line.splitn(5, |&byte| byte == b'-');
    let mut part = |length| parts.next().filter(|part| is_hex(part, length));
    let (version, trace, parent, flags) = (part(2), part(32), part(16), part(2));
    let (Some(version), Some(trace), Some(parent), Some(_)) = (version, trace, parent, flags)
    else {
        return false;
    };
    let is_zero = |part: &[u8]| part.iter().all(|&digit| digit == b'0');
    let has_more = parts.next().is_some();
    version != b"ff" && !is_zero(trace) && !is_zero(parent) && (version != b"00" || !has_more)
}

/// So many hexadecimal digits, in lower case.
fn is_hex(part: &[u8], length: usize) -> bool {
    part.len() == length
        && part
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_one_valid_line_travels() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let rows = [
            (VALID.to_owned(), true),
            (format!("  {VALID}\t"), true),
            (format!("00-{trace}-00"), true),
            (format!("cc-{trace}-01"), true),
            (format!("cc-{trace}-01-what-comes-later"), true),
            (format!("00-{trace}-01-more"), false),
            (format!("00-{trace}-01-"), false),
            (format!("ff-{trace}-01"), false),
            (format!("00-{trace}"), false),
            (format!("00-{trace}-1"), false),
            (format!("0-{trace}-01"), false),
            (VALID.to_uppercase(), false),
            (VALID.replace('f', "g"), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (
                format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
                false,
            ),
            (format!("{VALID}, {VALID}"), false),
            (String::new(), false),
            ("-".repeat(100), false),
        ];
        for (line, travels) in rows {
            let block = format!("traceparent: {line}\r\ntracestate: a=b\r\n");
            assert_eq!(
                trace_travels(Fields::new(block.as_bytes())),
                travels,
                "{line:?}"
            );
        }
    }

    #[test]
    fn none_and_two_do_not() {
        let two = format!("Traceparent: {VALID}\r\ntraceparent: {VALID}\r\n");
        assert!(!trace_travels(Fields::new(two.as_bytes())));
        assert!(!trace_travels(Fields::new(b"tracestate: a=b\r\n")));
    }
}
