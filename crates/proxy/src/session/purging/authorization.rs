//! Authorization of purge requests by address.

use std::net::IpAddr;

use microcache_engine::Request;
use microcache_policy::network::address;
use microcache_policy::{FieldName, is_address};

use crate::config::Cidr;

/// The reason why a request may not purge.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unauthorized {
    #[error("{0} is not in `purge_from`")]
    Peer(String),
    #[error("{0}, which it forwards for, is not in `purge_from`")]
    Client(IpAddr),
    #[error("a field with the address of its client contains no address")]
    UnreadableClient,
    #[error("it is a proxy (`Via`) that does not name the address of its client")]
    UnnamedClient,
}

/// Checks that the peer, and every client that the request names, is in one of these blocks.
///
/// The peer always has to be. Forwarding fields can only deny: a load balancer in a block must not admit the
/// clients behind it, and a forged field gains nothing. `through` is the proxy that announced the peer by the PROXY
/// protocol; it can claim any address, so its own is checked too.
pub(super) fn check(
    blocks: &[Cidr],
    request: &Request<'_>,
    through: Option<IpAddr>,
) -> Result<(), Unauthorized> {
    let is_in = |address: IpAddr| blocks.iter().any(|block| block.contains(address));
    if let Some(proxy) = through.filter(|&proxy| !is_in(proxy)) {
        return Err(Unauthorized::Peer(proxy.to_string()));
    }
    if !request.address.parse().is_ok_and(is_in) {
        return Err(Unauthorized::Peer(request.address.to_owned()));
    }
    let fields = request.fields;
    let lines = fields.iter().filter(|(name, _)| names_client(name));
    let members = lines.flat_map(|(_, line)| line.split(|&b| b == b','));
    // Split without regard to quotes, so that quoted addresses are checked too.
    let pairs = fields
        .all("forwarded")
        .flat_map(|line| line.split(|&b| b == b',' || b == b';'));
    let mut clients = members.chain(pairs.filter_map(forwarded_for)).peekable();
    // A proxy that does not name its client may forward for a stranger.
    if clients.peek().is_none() && fields.all("via").next().is_some() {
        return Err(Unauthorized::UnnamedClient);
    }
    for client in clients {
        let client = address(client).ok_or(Unauthorized::UnreadableClient)?;
        if !is_in(client) {
            return Err(Unauthorized::Client(client));
        }
    }
    Ok(())
}

/// Returns `true` for fields with the address of a client, also those of programs that fetch a URL for a stranger, as
/// WordPress does for a pingback (`X-Pingback-Forwarded-For`).
fn names_client(name: &[u8]) -> bool {
    is_address(FieldName::of(name)) || name.to_ascii_lowercase().ends_with(b"-forwarded-for")
}

/// Returns the value of a `for` pair (RFC 7239 §5.2).
fn forwarded_for(pair: &[u8]) -> Option<&[u8]> {
    let at = pair.iter().position(|&b| b == b'=')?;
    let (name, value) = (&pair[..at], &pair[at + 1..]);
    name.trim_ascii()
        .eq_ignore_ascii_case(b"for")
        .then_some(value)
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Fields, Scheme};

    use super::*;

    fn authorization(peer: &str, fields: &str, through: Option<&str>) -> Result<(), Unauthorized> {
        let blocks: Vec<Cidr> = ["10.0.0.0/8", "2001:db8::/32"]
            .iter()
            .map(|block| block.parse().unwrap())
            .collect();
        let request = Request {
            address: peer,
            fields: Fields::new(fields.as_bytes()),
            ..Request::of_url(Scheme::Http, b"h", b"/")
        };
        let through = through.map(|proxy| proxy.parse().unwrap());
        super::check(&blocks, &request, through)
    }

    fn check(peer: &str, fields: &str, expected: bool) {
        let authorization = authorization(peer, fields, None);
        assert_eq!(authorization.is_ok(), expected, "{peer} {fields:?}");
    }

    #[test]
    fn the_peer_has_to_be_in_the_block() {
        check("10.1.2.3", "", true);
        check("2001:db8::1", "", true);
        check("11.0.0.1", "", false);
        check("11.0.0.1", "X-Forwarded-For: 10.0.0.1\r\n", false);
        check("11.0.0.1", "Forwarded: for=10.0.0.1\r\n", false);
        check("", "", false);
    }

    #[test]
    fn a_load_balancer_does_not_admit_its_clients() {
        let check = |fields: &str, expected| check("10.0.0.1", fields, expected);
        check("X-Forwarded-For: 10.0.0.2, 10.0.0.3\r\n", true);
        check("X-Forwarded-For: 10.0.0.2:4711\r\n", true);
        check("X-Forwarded-For: 6.6.6.6\r\n", false);
        check("X-Forwarded-For: 10.0.0.2, 6.6.6.6\r\n", false);
        check("X-Forwarded-For: 6.6.6.6, 10.0.0.2\r\n", false);
        check(
            "x-forwarded-for: 10.0.0.2\r\nX-FORWARDED-FOR: 6.6.6.6\r\n",
            false,
        );
        check("X-Forwarded-For: unknown\r\n", false);
        check("X-Forwarded-For: \r\n", false);
        check("X-Real-IP: 6.6.6.6\r\n", false);
        check("CF-Connecting-IP: 6.6.6.6\r\n", false);
        check("X_Client_IP: 6.6.6.6\r\n", false);
        check("X-Pingback-Forwarded-For: 6.6.6.6\r\n", false);
        check("X-Cluster-Client-IP: 6.6.6.6\r\n", false);
        check("Fastly-Client-IP: 10.0.0.2\r\n", true);
        check("Via: 1.1 cdn\r\n", false);
        check("Via: 1.1 cdn\r\nX-Forwarded-For: 10.0.0.2\r\n", true);
        check("Forwarded: proto=https;for=10.0.0.2\r\n", true);
        check("Forwarded: for=\"[2001:db8::2]:80\";by=x\r\n", true);
        check("Forwarded: for=\"[2001:db8::2]\"\r\n", true);
        check("Forwarded: For=6.6.6.6\r\n", false);
        check("Forwarded: for=10.0.0.2, for=6.6.6.6\r\n", false);
        check("Forwarded: for=_hidden\r\n", false);
        check("Forwarded: by=\"x;for=10.0.0.2\r\n", true);
        check("Forwarded: by=\"x;for=6.6.6.6\"\r\n", false);
    }

    #[test]
    fn the_error_names_the_address_that_may_not_purge() {
        let says = |peer, fields, through| {
            authorization(peer, fields, through)
                .unwrap_err()
                .to_string()
        };
        let outside = "is not in `purge_from`";
        assert_eq!(says("11.0.0.1", "", None), format!("11.0.0.1 {outside}"));
        assert_eq!(
            says("10.0.0.1", "", Some("11.0.0.2")),
            format!("11.0.0.2 {outside}")
        );
        assert_eq!(
            says("10.0.0.1", "X-Forwarded-For: 10.0.0.2, 6.6.6.6\r\n", None),
            format!("6.6.6.6, which it forwards for, {outside}")
        );
        assert_eq!(
            says("10.0.0.1", "Forwarded: for=_hidden\r\n", None),
            "a field with the address of its client contains no address"
        );
        assert_eq!(
            says("10.0.0.1", "Via: 1.1 cdn\r\n", None),
            "it is a proxy (`Via`) that does not name the address of its client"
        );
        assert_eq!(authorization("10.0.0.1", "", Some("10.0.0.9")), Ok(()));
    }
}
