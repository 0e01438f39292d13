//! Requests on a connection: what the proxy accepts, httparse and hyper read in the same way, body
//! and following requests included. That is what request smuggling needs to be false.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_fuzz::hyper_reading;
use microcache_fuzz::our_reading::{BodyEnd, Request, Stop, indexes, lines, read_requests};
use microcache_policy::{FieldIndex, FieldLine, Fields};
use microcache_wire::h1::{HeadLimits, RequestTarget, parse_request, split_target};

const SMALL: HeadLimits = HeadLimits {
    head: 96,
    target: 16,
    fields: 3,
};

fuzz_target!(|input: &[u8]| {
    for limits in [HeadLimits::default(), SMALL] {
        more_bytes_never_change_a_reading(input, &limits);
    }
    let mut indexes = indexes(input);
    let (ours, stop) = read_requests(input, &mut indexes);
    for request in &ours {
        the_index_is_that_of_the_text(request.head.fields);
        httparse_agrees(request);
    }
    if !ours.is_empty() {
        hyper_agrees(&ours, stop, &hyper_reading::read_requests(input));
    }
});

fn more_bytes_never_change_a_reading(input: &[u8], limits: &HeadLimits) {
    let (mut index, mut part_index) = (FieldIndex::default(), FieldIndex::default());
    let whole = parse_request(input, limits, &mut index);
    let step = input.len() / 64 + 1;
    for length in (0..input.len()).step_by(step) {
        match parse_request(&input[..length], limits, &mut part_index) {
            Ok(None) => {}
            Err(_) => assert!(whole.is_err(), "refused at {length} and then taken"),
            Ok(Some((head, taken))) => {
                let Ok(Some((again, whole_taken))) = whole else {
                    panic!("taken at {length} and then not")
                };
                assert_eq!(taken, whole_taken);
                assert_eq!(format!("{head:?}"), format!("{again:?}"));
            }
        }
    }
}

fn the_index_is_that_of_the_text(fields: Fields<'_>) {
    let parts = |line: FieldLine<'_>| (line.name().to_vec(), line.known(), line.value().to_vec());
    let text = Fields::new(fields.as_block());
    assert!(fields.lines().map(parts).eq(text.lines().map(parts)));
}

fn httparse_agrees(ours: &Request<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut headers);
    let status = theirs.parse(ours.raw_head);
    assert_eq!(status, Ok(httparse::Status::Complete(ours.raw_head.len())));
    assert_eq!(theirs.method.map(str::as_bytes), Some(ours.head.method));
    assert_eq!(theirs.path.map(str::as_bytes), Some(ours.head.target));
    assert_eq!(theirs.version, Some(u8::from(!ours.head.http10)));
    let theirs: Vec<_> = theirs
        .headers
        .iter()
        .map(|line| (line.name.as_bytes().to_vec(), line.value.to_vec()))
        .collect();
    assert_eq!(theirs, lines(ours.head.fields));
}

fn hyper_agrees(ours: &[Request<'_>], stop: Stop, theirs: &[hyper_reading::Request]) {
    let mut kept = true;
    for (index, ours) in ours.iter().enumerate() {
        let Some(theirs) = theirs.get(index) else {
            // Hyper reads nothing at all from here on; there is no second reading.
            assert!(
                !kept || hyper_may_refuse(ours),
                "hyper refuses request {index}"
            );
            return;
        };
        kept = hyper_sees_connection(ours);
        same_head(ours, &theirs.head);
        if ours.head.method == b"CONNECT" {
            return;
        }
        if ours.body.end == BodyEnd::Malformed {
            return;
        }
        assert_eq!(theirs.body.complete, ours.body.end == BodyEnd::Complete);
        assert_eq!(theirs.body.data, ours.body.data);
        for (name, _) in &ours.body.trailers {
            let mine = ours
                .body
                .trailers
                .iter()
                .filter(|line| line.0.eq_ignore_ascii_case(name));
            let name = http::HeaderName::from_bytes(name).expect("a token");
            let others = theirs.body.trailers.get_all(name);
            assert!(
                mine.map(|line| &line.1[..])
                    .eq(others.iter().map(http::HeaderValue::as_bytes))
            );
        }
    }
    if stop == Stop::NeedMore {
        assert_eq!(theirs.len(), ours.len(), "hyper reads one request more");
    }
}

/// Hyper wants every target to be one that the `http` crate understands.
fn hyper_may_refuse(request: &Request<'_>) -> bool {
    http::Uri::try_from(request.head.target).is_err()
}

/// Hyper overlooks a `Connection` line with a byte beyond ASCII in it, and with it a `keep-alive`.
fn hyper_sees_connection(request: &Request<'_>) -> bool {
    let lines = lines(request.head.fields);
    lines
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
        .all(|(_, value)| value.is_ascii())
}

fn same_head(ours: &Request<'_>, theirs: &http::request::Parts) {
    assert_eq!(theirs.method.as_str().as_bytes(), ours.head.method);
    for name in theirs.headers.keys() {
        let mine = ours.head.fields.all(name.as_str());
        assert!(
            mine.eq(theirs
                .headers
                .get_all(name)
                .iter()
                .map(http::HeaderValue::as_bytes))
        );
    }
    assert_eq!(theirs.headers.len(), ours.head.fields.iter().count());

    // An absent path before a query is `/` for us, and stays absent for hyper. An absent path of an
    // OPTIONS is `*` for us, and `/` for hyper.
    let path = theirs.uri.path_and_query().map(|path| match path.as_str() {
        path if path.starts_with('?') => format!("/{path}").into_bytes(),
        path => path.as_bytes().to_vec(),
    });
    let authority = theirs.uri.authority().map(http::uri::Authority::as_str);
    match split_target(ours.head.method, ours.head.target) {
        Ok(RequestTarget::Origin(target)) => {
            assert_eq!((path.as_deref(), authority), (Some(target), None));
        }
        Ok(RequestTarget::Absolute {
            authority: ours,
            path: our_path,
            ..
        }) => {
            let without_empty_port = authority.map(|text| text.strip_suffix(':').unwrap_or(text));
            assert_eq!(without_empty_port.map(str::as_bytes), Some(ours));
            match &our_path[..] {
                b"*" => assert_eq!(path.as_deref(), Some(&b"/"[..])),
                our_path => assert_eq!(path.as_deref(), Some(our_path)),
            }
        }
        Ok(RequestTarget::Authority(ours)) => assert_eq!(authority.map(str::as_bytes), Some(ours)),
        Ok(RequestTarget::Asterisk) => assert_eq!(path.as_deref(), Some(&b"*"[..])),
        Err(_) => {}
    }
}
