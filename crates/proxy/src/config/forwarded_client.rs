//! The client that `X-Forwarded-For` names.

use std::net::IpAddr;

use microcache_policy::Fields;
use microcache_policy::network::address;

use super::cidr::Cidr;

/// Returns the last address in `X-Forwarded-For` that is not a trusted proxy, or the first one if all are. Addresses
/// before one that cannot be read are not reliable.
pub(crate) fn forwarded_client(request: Fields<'_>, trusted_proxies: &[Cidr]) -> Option<IpAddr> {
    let named: Vec<_> = request.members("x-forwarded-for").collect();
    let mut known = None;
    for member in named.into_iter().rev() {
        let Some(address) = address(member) else {
            break;
        };
        known = Some(address);
        if !trusted_proxies.iter().any(|block| block.contains(address)) {
            break;
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_name_another_forwarded_client() {
        let trusted: Vec<Cidr> = vec!["10.0.0.0/8".parse().unwrap()];
        for (field, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("6.6.6.6, 192.0.2.1", Some("192.0.2.1")),
            ("6.6.6.6, 192.0.2.1, 10.0.0.9", Some("192.0.2.1")),
            ("6.6.6.6, unknown, 10.0.0.9", Some("10.0.0.9")),
            ("2001:db8::1, 10.0.0.9", Some("2001:db8::1")),
            ("unknown", None),
        ] {
            let lines = format!("X-Forwarded-For: {field}\r\n");
            let found = forwarded_client(Fields::new(lines.as_bytes()), &trusted);
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{field}");
        }
        assert_eq!(forwarded_client(Fields::default(), &trusted), None);
    }
}
