//! Blocks of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses: `10.0.0.0/8`, `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The network; IPv4 addresses are IPv4-mapped IPv6 ones, as dual-stack sockets report them.
    network: u128,
    mask: u128,
}

impl Cidr {
    /// All addresses.
    pub(super) const EVERYTHING: Self = Self {
        network: 0,
        mask: 0,
    };

    /// Returns whether it contains every address.
    pub(super) const fn is_everything(&self) -> bool {
        self.mask == 0
    }

    /// Returns whether `address` is in the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        bits(address) & self.mask == self.network
    }

    /// Returns whether it contains every address of `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.mask & other.mask == self.mask && other.network & self.mask == self.network
    }

    /// Returns the first address of the block.
    pub(crate) fn first(&self) -> IpAddr {
        IpAddr::from(Ipv6Addr::from(self.network)).to_canonical()
    }

    /// Returns whether it is larger than any private network: than `10.0.0.0/8`, or than `fc00::/7`.
    pub(super) fn is_wide(&self) -> bool {
        let length = self.mask.leading_ones();
        let has_ipv4 = self.first().is_ipv4() || self.contains(Ipv4Addr::UNSPECIFIED.into());
        length < 7 || has_ipv4 && length < 96 + 8
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.first();
        let (length, longest) = match address {
            IpAddr::V4(_) => (self.mask.leading_ones().saturating_sub(96), 32),
            IpAddr::V6(_) => (self.mask.leading_ones(), 128),
        };
        if length == longest {
            return write!(f, "{address}");
        }
        write!(f, "{address}/{length}")
    }
}

const FORM: &str = "write an address such as \"10.0.0.1\" or a block such as \"10.0.0.0/8\"";

impl FromStr for Cidr {
    type Err = String;

    /// Parses an address alone or an address and a prefix length.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| FORM.to_owned())?;
        let longest: u32 = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => length.parse().map_err(|_| FORM.to_owned())?,
            None => longest,
        };
        if length > longest {
            return Err(format!(
                "the prefix length is at most {longest} for this address"
            ));
        }
        let mask = u128::MAX.checked_shl(longest - length).unwrap_or(0);
        let network = bits(address) & mask;
        if network != bits(address) {
            return Err(format!(
                "the address has bits set beyond the prefix length {length}: set them to zero"
            ));
        }
        Ok(Self { network, mask })
    }
}

fn bits(address: IpAddr) -> u128 {
    let address: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    address.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(block: &str, address: &str) -> bool {
        Cidr::from_str(block)
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn blocks_contain_their_addresses() {
        assert!(check("10.0.0.0/8", "10.1.2.3"));
        assert!(check("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!check("10.0.0.0/8", "11.0.0.0"));
        assert!(check("127.0.0.1", "127.0.0.1"));
        assert!(!check("127.0.0.1", "127.0.0.2"));
        assert!(check("0.0.0.0/0", "255.1.1.1"));
        assert!(!check("0.0.0.0/0", "2001:db8::1"));
        assert!(check("2001:db8::/32", "2001:db8:1::"));
        assert!(check("::/0", "2001:db8:1::"));
        assert!(!check("::1", "::2"));
    }

    #[test]
    fn a_block_larger_than_any_private_network_is_wide() {
        let is_wide = |block: &str| Cidr::from_str(block).unwrap().is_wide();
        for block in [
            "0.0.0.0/0",
            "128.0.0.0/1",
            "10.0.0.0/7",
            "::/0",
            "2000::/3",
            "::/80",
        ] {
            assert!(is_wide(block), "{block}");
        }
        for block in ["10.0.0.0/8", "0.0.0.0", "fc00::/7", "2001:db8::/32", "::1"] {
            assert!(!is_wide(block), "{block}");
        }
    }

    #[test]
    fn invalid_blocks_are_refused() {
        for text in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "10.0.0.0/x",
        ] {
            assert!(Cidr::from_str(text).is_err(), "{text}");
        }
    }
}
