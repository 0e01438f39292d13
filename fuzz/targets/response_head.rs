//! Responses of an origin: what the proxy accepts, httparse and hyper read in the same way, to the
//! body's last byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_fuzz::hyper_reading;
use microcache_fuzz::our_reading::{BodyEnd, Response, lines, read_response};
use microcache_policy::FieldIndex;
use microcache_wire::h1::{HeadLimits, parse_response};

fuzz_target!(|input: &[u8]| {
    more_bytes_never_change_a_reading(input);
    let mut index = FieldIndex::default();
    let Some(ours) = read_response(input, &mut index) else {
        return;
    };
    httparse_agrees(&ours);
    // What follows a 101 is no HTTP.
    if ours.head.status != 101 {
        hyper_agrees(&ours, hyper_reading::read_response(input));
    }
});

fn more_bytes_never_change_a_reading(input: &[u8]) {
    let limits = HeadLimits::default();
    let (mut index, mut part_index) = (FieldIndex::default(), FieldIndex::default());
    for to_head in [false, true] {
        let whole = parse_response(input, to_head, &limits, &mut index);
        let step = input.len() / 64 + 1;
        for length in (0..input.len()).step_by(step) {
            match parse_response(&input[..length], to_head, &limits, &mut part_index) {
                Ok(None) => {}
                Err(_) => assert!(whole.is_err(), "refused at {length} and then taken"),
                Ok(Some(part)) => {
                    assert_eq!(
                        format!("{:?}", Ok::<_, &str>(Some(part))),
                        format!("{whole:?}")
                    );
                }
            }
        }
    }
}

fn httparse_agrees(ours: &Response<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Response::new(&mut headers);
    let status = theirs.parse(ours.raw_head);
    assert_eq!(status, Ok(httparse::Status::Complete(ours.raw_head.len())));
    assert_eq!(theirs.code, Some(ours.head.status));
    assert_eq!(theirs.version, Some(u8::from(!ours.head.http10)));
    let theirs: Vec<_> = theirs
        .headers
        .iter()
        .map(|line| (line.name.as_bytes().to_vec(), line.value.to_vec()))
        .collect();
    assert_eq!(theirs, lines(ours.head.fields));
}

fn hyper_agrees(ours: &Response<'_>, theirs: Option<hyper_reading::Response>) {
    let theirs = theirs.expect("hyper refuses the head");
    assert_eq!(theirs.head.status.as_u16(), ours.head.status);
    if ours.body.end != BodyEnd::Malformed {
        assert_eq!(theirs.body.complete, ours.body.end == BodyEnd::Complete);
        assert_eq!(theirs.body.data, ours.body.data);
    }
}
