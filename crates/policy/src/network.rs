//! Whom an address stands for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// An address of version 4, or the /64 of one of version 6: who has one of those mostly has all of it.
///
/// It takes 64 bits. The few networks of version 6 that look like addresses of version 4, `::/32`, are nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(u64);

impl Network {
    /// The network that this address is of.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            // Whoever is on this machine is so in both versions.
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Self::of(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }

    /// The one that takes these bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// What it takes.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// An address as proxies write it: in quotes or not, in brackets or not, with a port or not. `None` if
/// it is none, such as `unknown`.
pub fn address(text: &[u8]) -> Option<IpAddr> {
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

/// As an operator would write it.
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
