//! The network of a client's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// An IPv4 address, or the /64 of an IPv6 address, which is usually assigned as a whole.
///
/// It is 64 bits. The few IPv6 networks that collide with IPv4 addresses, `::/32`, are unassigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(u64);

impl Network {
    /// The network of this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            // The loopback address is the same in both versions.
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Self::of(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }

    /// The network with this representation.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The representation as bits.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Parses an address as proxies write it: with or without quotes, brackets, and port. `None` if it is not one, such as
/// `unknown`.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    if let Some(v4) = plain_v4(text) {
        return Some(IpAddr::V4(v4));
    }
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    IpAddr::from_str(bare)
        .ok()
        .or_else(|| SocketAddr::from_str(text).ok().map(|at| at.ip()))
}

/// The address of four numbers, as nearly all are written: several times as fast as the parser of all forms.
fn plain_v4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let (mut place, mut digits) = (0, 0);
    for &byte in text {
        let octet = octets.get_mut(place)?;
        match byte {
            // No zero before other digits.
            b'0'..=b'9' if digits == 0 || *octet > 0 => {
                *octet = octet.checked_mul(10)?.checked_add(byte - b'0')?;
                digits += 1;
            }
            b'.' if digits > 0 => (place, digits) = (place + 1, 0),
            _ => return None,
        }
    }
    (place == 3 && digits > 0).then(|| Ipv4Addr::from(octets))
}

/// Formats the network as in a configuration.
impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match u32::try_from(self.0) {
            Ok(v4) => Ipv4Addr::from_bits(v4).fmt(f),
            Err(_) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_numbers_are_read_as_the_standard_library_reads_them() {
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "255.255.255.255",
            "256.0.0.1",
            "1.2.3.1000",
            "01.2.3.4",
            "1.2.3.00",
            "1.2.3",
            "1.2.3.",
            ".1.2.3",
            "1..2.3",
            "1.2.3.4.",
            "1.2.3.4.5",
            "1.2.3.4:80",
            " 1.2.3.4",
            "1.2.3.+4",
            "",
        ] {
            let expected = text.parse::<Ipv4Addr>().ok();
            assert_eq!(plain_v4(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(address(b" \"1.2.3.4:80\" "), address(b"1.2.3.4"));
    }

    #[test]
    fn an_address_is_a_network_in_version_6() {
        for (address, shown) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("::1", "127.0.0.1"),
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::ffff:0:0:1", "2001:db8::/64"),
            ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ] {
            let network = Network::of(address.parse().expect("an address"));
            assert_eq!(network.to_string(), shown, "{address}");
            assert_eq!(Network::from_bits(network.bits()), network);
        }
    }
}
