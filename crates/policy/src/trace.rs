//! W3C Trace Context, which correlates requests of several applications.
//!
//! A proxy that takes no part in a trace forwards both fields unchanged, so that the application's spans have the
//! client's as their parent. An invalid `traceparent` is not forwarded, and neither is its `tracestate` (Trace Context
//! §4.3): the application then begins a new trace. If this proxy takes part, the application's spans have one of its
//! spans as their parent.

use crate::field_name::FieldName;
use crate::fields::Fields;
use crate::known_name::names;

/// The trace context of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace id.
    pub trace: [u8; 16],
    /// The id of the sender's span.
    pub parent: [u8; 8],
    /// The sender has sampled this trace.
    pub is_sampled: bool,
}

/// A span of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace id.
    pub trace: [u8; 16],
    /// The span id.
    pub id: [u8; 8],
    /// The id of the parent span.
    pub parent: Option<[u8; 8]>,
}

impl Span {
    /// A child span with this id.
    #[must_use]
    pub const fn child(&self, id: [u8; 8]) -> Self {
        Self {
            trace: self.trace,
            id,
            parent: Some(self.id),
        }
    }

    /// The `traceparent` of requests within this span (Trace Context §3.2), with the sampled flag.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", hex::encode(self.trace), hex::encode(self.id))
    }
}

/// The trace context of a request, if it is valid.
pub fn trace_parent(request: Fields<'_>) -> Option<TraceParent> {
    if !trace_travels(request) {
        return None;
    }
    let line = request.get("traceparent")?.trim_ascii();
    let mut parts = line.split(|&byte| byte == b'-').skip(1);
    let (trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?);
    Some(TraceParent {
        trace: bytes(trace)?,
        parent: bytes(parent)?,
        is_sampled: bytes::<1>(flags)?[0] & 1 == 1,
    })
}

/// Parses hexadecimal digits, two for each byte.
fn bytes<const LENGTH: usize>(digits: &[u8]) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

/// Returns true for the fields of Trace Context.
pub fn is_trace_field(name: FieldName<'_>) -> bool {
    name.is(names::TRACEPARENT) || name.is(names::TRACESTATE)
}

/// Returns true if the fields of a trace are forwarded: there is one `traceparent`, and it is valid.
pub fn trace_travels(request: Fields<'_>) -> bool {
    let mut lines = request.values(names::TRACEPARENT);
    matches!((lines.next(), lines.next()), (Some(line), None) if is_valid(line.trim_ascii()))
}

/// Returns true for a valid `traceparent` (Trace Context §3.2.2): version, trace id, parent id and flags. Later
/// versions may have more behind them.
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

/// Returns true for this number of hexadecimal digits in lower case.
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
    fn the_forwarded_traceparent_names_the_span() {
        let block = format!("traceparent: {VALID}\r\n");
        let parent = trace_parent(Fields::new(block.as_bytes())).expect("it is valid");
        assert!(parent.is_sampled);
        assert_eq!(
            hex::encode(parent.trace),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(hex::encode(parent.parent), "00f067aa0ba902b7");
        let span = Span {
            trace: parent.trace,
            id: [1; 8],
            parent: Some(parent.parent),
        };
        let line = span.child([0xab; 8]).traceparent();
        let expected = "00-4bf92f3577b34da6a3ce929d0e0e4736-abababababababab-01";
        assert_eq!(line, expected);
        assert_eq!(span.child([2; 8]).parent, Some([1; 8]));
        for (flags, is_sampled) in [("00", false), ("02", false), ("03", true)] {
            let block = format!("traceparent: {}{flags}\r\n", &VALID[..VALID.len() - 2]);
            let parent = trace_parent(Fields::new(block.as_bytes()));
            assert_eq!(parent.map(|parent| parent.is_sampled), Some(is_sampled));
        }
        assert_eq!(
            trace_parent(Fields::new(b"traceparent: 00-1-2-01\r\n")),
            None
        );
    }

    #[test]
    fn none_and_two_do_not() {
        let two = format!("Traceparent: {VALID}\r\ntraceparent: {VALID}\r\n");
        assert!(!trace_travels(Fields::new(two.as_bytes())));
        assert!(!trace_travels(Fields::new(b"tracestate: a=b\r\n")));
    }
}
