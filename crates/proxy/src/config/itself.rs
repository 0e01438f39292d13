//! Detection of an origin that is this server itself, which would be a loop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use crate::upstream::settings::{ServerAddress, ServerSettings};

/// Notes origin servers that are a client address of this server. Names other than those of the loopback
/// interface are not resolved; a loop through them is detected by the requests that come back.
pub(super) fn note_itself(
    listen: &[SocketAddr],
    servers: &[ServerSettings],
    place: &Place,
    mistakes: &mut Mistakes,
) {
    for server in servers {
        if let Some(address) = listen.iter().find(|address| is_at(server, address)) {
            let what = format!(
                "{} is Microcache itself, which listens on {address}",
                server.address
            );
            mistakes.note(
                Mistake::new(place, what).remedy(
                    "set the address of the application, or choose another one with `listen`",
                ),
            );
        }
    }
}

fn is_at(server: &ServerSettings, listen: &SocketAddr) -> bool {
    match &server.address {
        ServerAddress::Tcp { host, port } => {
            *port == listen.port()
                && addresses(host)
                    .iter()
                    .any(|&address| takes(listen.ip(), address))
        }
        // Microcache listens on none.
        ServerAddress::Unix(_) => false,
    }
}

/// Returns the addresses known without DNS.
fn addresses(host: &str) -> Vec<IpAddr> {
    const LOOPBACK: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        // Connecting to the wildcard address connects to this machine.
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => vec![LOOPBACK[0]],
        Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => vec![LOOPBACK[1]],
        Ok(address) => vec![address.to_canonical()],
        Err(_) if name == "localhost" || name.ends_with(".localhost") => LOOPBACK.into(),
        Err(_) => Vec::new(),
    }
}

/// Returns whether a connection to `address` reaches a listener on `listen`.
fn takes(listen: IpAddr, address: IpAddr) -> bool {
    match listen.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.is_ipv4() && is_own(address),
        // It accepts connections of both families.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => is_own(address),
        listen => listen == address,
    }
}

/// Returns whether an address belongs to this machine: the system would connect to it from that same
/// address. Finding out sends no packet.
fn is_own(address: IpAddr) -> bool {
    if address.is_loopback() {
        return true;
    }
    let any: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_server_are_recognized() {
        for (listen, host, expected) in [
            ("127.0.0.1:80", "127.0.0.1", true),
            ("127.0.0.1:80", "localhost", true),
            ("127.0.0.1:80", "LOCALHOST.", true),
            ("127.0.0.1:80", "app.localhost", true),
            ("127.0.0.1:80", "0.0.0.0", true),
            ("127.0.0.1:80", "::ffff:127.0.0.1", true),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1", true),
            ("127.0.0.1:80", "127.0.0.2", false),
            ("127.0.0.1:80", "::1", false),
            ("127.0.0.1:81", "127.0.0.1", false),
            ("0.0.0.0:80", "127.0.0.1", true),
            ("0.0.0.0:80", "127.1.2.3", true),
            ("0.0.0.0:80", "localhost", true),
            ("0.0.0.0:80", "::1", false),
            ("0.0.0.0:80", "192.0.2.1", false),
            ("0.0.0.0:80", "example.com", false),
            ("[::]:80", "::1", true),
            ("[::]:80", "127.0.0.1", true),
            ("[::]:80", "::", true),
            ("[::1]:80", "localhost", true),
            ("[::1]:80", "127.0.0.1", false),
            ("10.0.0.1:80", "10.0.0.1", true),
            ("10.0.0.1:80", "localhost", false),
        ] {
            let server = ServerSettings::new(host, 80);
            let is_at = is_at(&server, &listen.parse().unwrap());
            assert_eq!(is_at, expected, "{host} behind {listen}");
        }
    }
}
