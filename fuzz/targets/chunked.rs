//! The chunked coding: the streaming decoder against a plain model, whatever pieces it is fed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_fuzz::chunked;
use microcache_fuzz::our_reading::{BodyEnd, read_body};
use microcache_wire::h1::Framing;

fuzz_target!(|input: &[u8]| {
    let (whole, length) = read_body(Framing::Chunked, input, input.len());
    for step in [1, 2, 3, 7, 64] {
        let (pieces, taken) = read_body(Framing::Chunked, input, step);
        assert_eq!(pieces, whole, "in pieces of {step}");
        if whole.end == BodyEnd::Complete {
            assert_eq!(taken, length, "in pieces of {step}");
        }
    }

    let model = chunked::read(input);
    assert_eq!(whole.end == BodyEnd::Complete, model.is_some());
    let Some(model) = model else { return };
    assert_eq!((&whole.data, length), (&model.data, model.length));
    let mut all = model.trailers.iter();
    for kept in &whole.trailers {
        assert!(all.any(|line| line == kept), "a trailer out of nowhere");
        for forbidden in ["content-length", "transfer-encoding", "host", "set-cookie"] {
            assert!(!kept.0.eq_ignore_ascii_case(forbidden.as_bytes()));
        }
    }
});
