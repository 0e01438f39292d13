//! Parser of the PROXY protocol, versions 1 and 2: the header in which a TCP proxy names its client. There is
//! no I/O in here.
//!
//! A sender of this header can claim any address. So it is read from configured addresses only, once at the
//! very beginning of a connection, and strictly: any error closes the connection, nothing is guessed.
//! (<https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest accepted header in bytes: version 2 may carry optional fields.
pub const LONGEST: usize = 4096;

/// Longest header of version 1 in bytes, with its line end.
const LONGEST_LINE: usize = 107;
const LINE: &[u8] = b"PROXY ";
/// Signature of version 2, which begins no request and no handshake.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of the signature, version and command, family and transport, and length of the rest.
const FIXED: usize = 16;
/// Type of the optional field with the checksum (`PP2_TYPE_CRC32C`).
const CHECKSUM: u8 = 0x03;

/// Origin of a connection according to its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxySource {
    /// A client at this address.
    Client(IpAddr),
    /// A client whose address the proxy does not know.
    Unknown,
    /// The proxy itself, for a health check.
    Proxy,
}

/// Error of a header, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadProxyHeader(pub &'static str);

/// Parses the header at the front. Returns it with its length; `None` while it is incomplete.
///
/// Fails on any deviation from the specification; the connection must then be closed.
pub fn read(input: &[u8]) -> Result<Option<(ProxySource, usize)>, BadProxyHeader> {
    if input.starts_with(LINE) {
        line(input)
    } else if input.starts_with(SIGNATURE) {
        binary(input)
    } else if LINE.starts_with(input) || SIGNATURE.starts_with(input) {
        Ok(None)
    } else {
        Err(BadProxyHeader("no PROXY header"))
    }
}

/// Returns `true` if these bytes are the beginning of a header, and of nothing else.
pub fn is_begun(input: &[u8]) -> bool {
    input.starts_with(LINE) || input.starts_with(SIGNATURE)
}

/// Parses version 1: `PROXY TCP4 192.0.2.7 198.51.100.1 56324 443` and the line end.
fn line(input: &[u8]) -> Result<Option<(ProxySource, usize)>, BadProxyHeader> {
    let most = &input[..input.len().min(LONGEST_LINE)];
    let Some(end) = memchr::memchr(b'\n', most) else {
        return if input.len() < LONGEST_LINE {
            Ok(None)
        } else {
            Err(BadProxyHeader("a line of more than 107 bytes"))
        };
    };
    let text = most[..end]
        .strip_suffix(b"\r")
        .filter(|text| text.iter().all(|byte| (b' '..=b'~').contains(byte)))
        .and_then(|text| std::str::from_utf8(text).ok())
        .ok_or(BadProxyHeader(
            "a line that is not ASCII text followed by CRLF",
        ))?;
    let words: Vec<&str> = text.split(' ').collect();
    let source =
        match words[..] {
            [_, "UNKNOWN", ..] => Some(ProxySource::Unknown),
            [_, "TCP4", from, to, port, other] => both::<Ipv4Addr>(from, to, [port, other])
                .map(|from| ProxySource::Client(from.into())),
            [_, "TCP6", from, to, port, other] => both::<Ipv6Addr>(from, to, [port, other])
                .map(|from| ProxySource::Client(from.into())),
            _ => None,
        };
    match source {
        Some(source) => Ok(Some((source, end + 1))),
        None => Err(BadProxyHeader("a line without two addresses and two ports")),
    }
}

/// Returns the first of two addresses, if they and their ports are in canonical form.
fn both<T: std::str::FromStr>(from: &str, to: &str, ports: [&str; 2]) -> Option<T> {
    let is_port = |port: &&str| {
        let plain = port.bytes().all(|byte| byte.is_ascii_digit());
        let zeros = port.len() > 1 && port.starts_with('0');
        plain && !zeros && port.parse::<u16>().is_ok()
    };
    let _: T = to.parse().ok()?;
    ports.iter().all(is_port).then(|| from.parse().ok())?
}

/// Parses version 2.
fn binary(input: &[u8]) -> Result<Option<(ProxySource, usize)>, BadProxyHeader> {
    let Some((&[.., command, family, high, low], _)) = input.split_first_chunk::<FIXED>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let whole = FIXED + length;
    if whole > LONGEST {
        return Err(BadProxyHeader("a header of more than 4096 bytes"));
    }
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(BadProxyHeader("another version, or an unknown command")),
    };
    // Bytes of the addresses: TCP or UDP over IPv4 or IPv6, and Unix sockets.
    let addresses = match family {
        0x00 => 0,
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        _ => return Err(BadProxyHeader("an unknown address family")),
    };
    let Some(header) = input.get(..whole) else {
        return Ok(None);
    };
    // Addresses of a LOCAL command or an unspecified family are ignored.
    if is_local || addresses == 0 {
        let source = if is_local {
            ProxySource::Proxy
        } else {
            ProxySource::Unknown
        };
        return Ok(Some((source, whole)));
    }
    let (said, pieces) = header[FIXED..]
        .split_at_checked(addresses)
        .ok_or(BadProxyHeader(
            "a header that is too short for its addresses",
        ))?;
    check_pieces(header, pieces)?;
    let source = match family {
        0x11 | 0x12 => said
            .first_chunk::<4>()
            .map(|from| IpAddr::from(Ipv4Addr::from(*from))),
        0x21 | 0x22 => said
            .first_chunk::<16>()
            .map(|from| IpAddr::from(Ipv6Addr::from(*from))),
        _ => None,
    };
    let source = source.map_or(ProxySource::Unknown, ProxySource::Client);
    Ok(Some((source, whole)))
}

/// Checks the optional fields (type, length, value). All but the checksum are ignored.
fn check_pieces(header: &[u8], pieces: &[u8]) -> Result<(), BadProxyHeader> {
    let mut rest = pieces;
    let mut checksum = None;
    while let Some((&[kind, high, low], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, next) = behind
            .split_at_checked(length)
            .ok_or(BadProxyHeader("a TLV that is longer than the header"))?;
        if kind == CHECKSUM {
            let said = <[u8; 4]>::try_from(value);
            let said = said.map_err(|_| BadProxyHeader("a checksum of wrong length"))?;
            let at = header.len() - behind.len();
            if checksum.replace((at, u32::from_be_bytes(said))).is_some() {
                return Err(BadProxyHeader("two checksums"));
            }
        }
        rest = next;
    }
    if !rest.is_empty() {
        return Err(BadProxyHeader("a truncated TLV"));
    }
    match checksum {
        Some((at, said)) if crc32c(header, at..at + 4) != said => {
            Err(BadProxyHeader("checksum mismatch"))
        }
        _ => Ok(()),
    }
}

/// Returns the CRC-32C of a header (RFC 9260, appendix A) with these bytes taken as zeros.
fn crc32c(header: &[u8], zeros: std::ops::Range<usize>) -> u32 {
    const REVERSED: u32 = 0x82f6_3b78;
    let mut sum = u32::MAX;
    for (at, &byte) in header.iter().enumerate() {
        sum ^= if zeros.contains(&at) {
            0
        } else {
            u32::from(byte)
        };
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { REVERSED } else { 0 };
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a header of version 2.
    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    fn piece(kind: u8, value: &[u8]) -> Vec<u8> {
        let length = (value.len() as u16).to_be_bytes();
        [&[kind], &length[..], value].concat()
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80];

    /// Checks the reading at every split, and with bytes behind it.
    fn check(header: &[u8], expected: ProxySource) {
        for length in 0..header.len() {
            assert_eq!(read(&header[..length]), Ok(None), "{length} of {header:?}");
        }
        for behind in [&b""[..], b"GET / HTTP/1.1\r\n", b"PROXY ", SIGNATURE] {
            let whole = [header, behind].concat();
            assert_eq!(read(&whole), Ok(Some((expected, header.len()))));
        }
        assert!(is_begun(header));
    }

    fn client(address: &str) -> ProxySource {
        ProxySource::Client(address.parse().expect("an address"))
    }

    #[test]
    fn lines() {
        let check = |line: &str, expected| check(line.as_bytes(), expected);
        check(
            "PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n",
            client("192.0.2.7"),
        );
        check(
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            client("255.255.255.255"),
        );
        check(
            "PROXY TCP6 2001:db8::7 ::1 0 65535\r\n",
            client("2001:db8::7"),
        );
        check(
            "PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n",
            client("::ffff:192.0.2.7"),
        );
        let full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        check(
            &format!("PROXY TCP6 {full} {full} 65535 65535\r\n"),
            client(full),
        );
        check("PROXY UNKNOWN\r\n", ProxySource::Unknown);
        let longest = format!("PROXY UNKNOWN {full} {full} 65535 65535\r\n");
        assert_eq!(longest.len(), LONGEST_LINE);
        check(&longest, ProxySource::Unknown);
    }

    #[test]
    fn lines_that_are_none() {
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LONGEST_LINE - 15));
        for line in [
            "GET / HTTP/1.1\r\n",
            "proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY\r\n",
            "PROXY \r\n",
            "PROXY  TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1 2 \r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +1 2\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1  2\r\n",
            "PROXY TCP4 192.0.2.07 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.7/8 10.0.0.1 1 2\r\n",
            "PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.7 elsewhere 1 2\r\n",
            "PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
            "PROXY UNKNOWN\u{1}\r\n",
            "PROXY UNKNOWN a\rb\r\n",
            "PROXY TCP4\t192.0.2.7 10.0.0.1 1 2\r\n",
            &long,
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        let endless = [b'x'; LONGEST_LINE - LINE.len()];
        assert!(read(&[LINE, &endless].concat()).is_err());
    }

    #[test]
    fn headers() {
        let v6: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        let v6 = [&v6.octets()[..], &[0; 20]].concat();
        let noise = [piece(0x04, b""), piece(0xea, b"vpce-1"), piece(0x01, b"h2")].concat();
        for (header, expected) in [
            (header(0x21, 0x11, &V4), client("192.0.2.7")),
            (header(0x21, 0x12, &V4), client("192.0.2.7")),
            (
                header(0x21, 0x11, &[&V4[..], &noise].concat()),
                client("192.0.2.7"),
            ),
            (header(0x21, 0x21, &v6), client("2001:db8::7")),
            (
                header(0x21, 0x22, &[&v6[..], &noise].concat()),
                client("2001:db8::7"),
            ),
            (header(0x21, 0x31, &[b'/'; 216]), ProxySource::Unknown),
            (header(0x21, 0x00, b""), ProxySource::Unknown),
            (header(0x21, 0x00, b"whatever"), ProxySource::Unknown),
            (header(0x20, 0x00, b""), ProxySource::Proxy),
            (header(0x20, 0x11, &V4), ProxySource::Proxy),
            (header(0x20, 0x11, b"cut"), ProxySource::Proxy),
            (
                header(0x20, 0x00, &[0; LONGEST - FIXED]),
                ProxySource::Proxy,
            ),
        ] {
            check(&header, expected);
        }
    }

    #[test]
    fn headers_that_are_none() {
        let with = |rest: &[u8]| header(0x21, 0x11, &[&V4, rest].concat());
        let checksum = piece(CHECKSUM, &[0; 4]);
        for header in [
            header(0x11, 0x11, &V4),
            header(0x22, 0x11, &V4),
            header(0x21, 0x01, &V4),
            header(0x21, 0x10, &V4),
            header(0x21, 0x13, &V4),
            header(0x21, 0x41, &V4),
            header(0x20, 0xff, b""),
            header(0x21, 0x11, &V4[..11]),
            header(0x21, 0x21, &V4),
            header(0x21, 0x31, &V4),
            header(0x21, 0x11, &[0; LONGEST - FIXED + 1]),
            with(b"\x04"),
            with(b"\x04\0"),
            with(b"\x04\0\x01"),
            with(&[piece(0x04, b"").as_slice(), b"\0"].concat()),
            with(&piece(CHECKSUM, &[0; 3])),
            with(&checksum),
            with(&[checksum.as_slice(), &checksum].concat()),
        ] {
            assert!(read(&header).is_err(), "{header:?}");
        }
    }

    #[test]
    fn a_checksum_is_that_of_the_header_without_it() {
        // The standard check value.
        assert_eq!(crc32c(b"123456789", 0..0), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32], 0..0), 0x8a91_36aa);
        let made = |before: &[u8], behind: &[u8]| {
            let rest = [&V4, before, &piece(CHECKSUM, &[0; 4]), behind].concat();
            let mut header = header(0x21, 0x11, &rest);
            let at = FIXED + V4.len() + before.len() + 3;
            let sum = crc32c(&header, 0..0).to_be_bytes();
            header[at..at + 4].copy_from_slice(&sum);
            (header, at - 3)
        };
        for (header, kind) in [made(b"", b""), made(&piece(1, b"h2"), &piece(4, b"xy"))] {
            check(&header, client("192.0.2.7"));
            // With another type, the field is not a checksum.
            for at in (SIGNATURE.len()..header.len()).filter(|at| *at != kind) {
                let mut other = header.clone();
                other[at] ^= 1;
                let is_read = matches!(read(&other), Ok(Some((ProxySource::Client(_), _))));
                assert!(!is_read, "{at} of {header:?}");
            }
        }
    }

    proptest! {
        /// More bytes never change a reading, and nothing is read beyond the limit.
        #[test]
        fn bytes_are_a_header_or_refused(
            begins in prop::sample::select(vec![&b""[..], LINE, SIGNATURE, b"PROXY TCP4 1.2.3.4 ", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"]),
            rest in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let input = [begins, &rest].concat();
            let whole = read(&input);
            let mut before = Ok(None);
            for length in 0..=input.len() {
                let now = read(&input[..length]);
                prop_assert!(before == Ok(None) || before == now, "{length} of {input:?}");
                before = now;
            }
            prop_assert_eq!(before, whole);
            if let Ok(Some((_, length))) = whole {
                prop_assert!(length <= LONGEST.min(input.len()));
            }
        }
    }
}
