//! Frames on a connection: any bytes are frames or refused, and more bytes never change a reading.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_wire::h2::frame::{Frame, HEADER, MAX_PAYLOAD, read};

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some((frame, length))) = read(rest) {
        assert!((HEADER..=HEADER + MAX_PAYLOAD).contains(&length));
        assert_eq!(read(&rest[..length]), Ok(Some((frame, length))));
        assert_eq!(read(&rest[..length - 1]), Ok(None));
        if let Frame::Data { data, flow, .. } = frame {
            assert!(data.len() <= flow && flow == length - HEADER);
        }
        rest = &rest[length..];
    }
    // What is refused is so whatever follows it, and what is incomplete has not all come.
    match read(rest) {
        Err(bad) => {
            let whole = rest.len().min(bad.length);
            assert_eq!(read(&rest[..whole]), Err(bad));
        }
        Ok(frame) => assert_eq!(frame, None),
    }
});
