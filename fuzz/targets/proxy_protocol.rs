//! The beginning of a connection behind a load balancer: any bytes are a header or refused, more bytes never change a
//! reading, and only what stands in the header is believed.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use microcache_wire::proxy_protocol::{LONGEST, ProxySource, is_begun, read};

fuzz_target!(|input: &[u8]| {
    let whole = read(input);
    let first = (0..=input.len()).find(|&length| read(&input[..length]) != Ok(None));
    match (whole, first) {
        (Ok(None), first) => {
            assert_eq!(first, None);
            assert!(input.len() < LONGEST, "it is bounded");
        }
        (Ok(Some((source, length))), first) => {
            assert_eq!(
                first,
                Some(length),
                "it is read as soon as it is there, and no more than it"
            );
            assert!(length <= LONGEST && is_begun(input));
            assert_eq!(read(&input[..length]), whole);
            if let ProxySource::Client(address) = source {
                assert!(is_said(&input[..length], address));
            }
        }
        (Err(_), first) => {
            let first = first.expect("the whole is refused");
            assert_eq!(
                read(&input[..first]),
                whole,
                "it stays refused, for the same reason"
            );
        }
    }
});

/// Whether a header has this address as the first of its two.
fn is_said(header: &[u8], address: IpAddr) -> bool {
    if header.starts_with(b"PROXY ") {
        let text = std::str::from_utf8(header).expect("a line is text");
        return text.split(' ').nth(2).and_then(|it| it.parse().ok()) == Some(address);
    }
    match address {
        IpAddr::V4(v4) => header[16..20] == v4.octets(),
        IpAddr::V6(v6) => header[16..32] == v6.octets(),
    }
}
