//! The URLs of origins.

use std::path::PathBuf;

use crate::upstream::settings::{OriginProtocol, ServerAddress};

/// Longest path of a Unix socket, in bytes (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The address and path in an origin's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OriginUrl {
    pub(super) address: ServerAddress,
    /// The path without a slash at its end.
    pub(super) path: String,
    pub(super) protocol: OriginProtocol,
}

impl OriginUrl {
    /// Parses `http://host:port`, with a path or without, or `http://unix:/path`, which is also `unix:///path`. The other schemes are `https`,
    /// without sockets, and `fastcgi`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(write_with_scheme(text));
        };
        let protocol = match scheme.to_ascii_lowercase().as_str() {
            "http" => OriginProtocol::Http,
            "https" => OriginProtocol::Https,
            "fastcgi" => OriginProtocol::FastCgi,
            "unix" => return Self::socket(rest, OriginProtocol::Http),
            _ => return Err("an origin must be http://, https:// or fastcgi://".to_owned()),
        };
        match (rest.strip_prefix("unix:"), protocol) {
            (Some(_), OriginProtocol::Https) => {
                return Err("write http://: there is no TLS on a Unix socket".to_owned());
            }
            (Some(path), _) => return Self::socket(path, protocol),
            (None, _) => {}
        }
        if rest.contains(['?', '#']) {
            return Err(
                "remove `?`, `#` and what follows them: requests have their own".to_owned(),
            );
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/').to_owned();
        let mut segments = path.split('/').skip(1);
        if segments.any(|it| matches!(it, "" | "." | ".."))
            || !path.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err("write the path encoded, without empty segments, `.` and `..`".to_owned());
        }
        if authority.contains('@') {
            return Err("remove user name and password".to_owned());
        }
        let (host, port) = split_port(authority, protocol.default_port())?;
        check_host(host)?;
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        Ok(Self {
            address: ServerAddress::Tcp { host, port },
            path,
            protocol,
        })
    }

    /// A Unix socket. It need not exist yet.
    fn socket(path: &str, protocol: OriginProtocol) -> Result<Self, String> {
        Ok(Self {
            address: ServerAddress::Unix(socket_path(path)?),
            path: String::new(),
            protocol,
        })
    }

    /// Returns `true` for a Unix socket.
    pub(super) const fn is_socket(&self) -> bool {
        matches!(self.address, ServerAddress::Unix(_))
    }
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    // nginx has a path behind a second colon.
    let path = text.strip_suffix(":/").unwrap_or(text);
    if !path.starts_with('/') || path.ends_with('/') {
        return Err("write http://unix:/PATH with the full path of the socket".to_owned());
    }
    if path.contains([':', '?', '#', '\0']) {
        return Err(
            "an origin is a socket: remove what follows its path, since requests have their own"
                .to_owned(),
        );
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(format!(
            "the path of a socket has at most {MAX_SOCKET_PATH} bytes"
        ));
    }
    Ok(path.into())
}

/// Returns what to write in place of an origin without a scheme.
fn write_with_scheme(text: &str) -> String {
    if let Some(path) = text.strip_prefix("unix:") {
        return format!("write http://unix:{path}");
    }
    if text.starts_with('/') && text.strip_suffix(".sock").is_some() {
        return format!("write http://unix:{text}");
    }
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let url = match authority {
        "" => "http://HOST:PORT".to_owned(),
        _ if authority.bytes().all(|b| b.is_ascii_digit()) => {
            format!("http://localhost:{authority}")
        }
        _ if authority.starts_with(':') => format!("http://localhost{authority}"),
        _ => format!("http://{authority}"),
    };
    match path {
        "/" => format!("write {url}"),
        _ => format!("write {url}{path}"),
    }
}

fn split_port(authority: &str, default: u16) -> Result<(&str, u16), String> {
    let colon = authority
        .rfind(':')
        .filter(|&at| !authority[at..].contains(']'));
    let Some(colon) = colon else {
        return Ok((authority, default));
    };
    match authority[colon + 1..].parse() {
        Ok(port) if port > 0 => Ok((&authority[..colon], port)),
        _ => Err("the port must be a number from 1 to 65535".to_owned()),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').unwrap_or("");
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) => Ok(()),
            Err(_) => Err("no IPv6 address in the brackets".to_owned()),
        };
    }
    if host.contains(':') {
        return Err("write an IPv6 address in brackets: http://[::1]:3000".to_owned());
    }
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || !host.bytes().all(legal) {
        return Err("write http://HOST:PORT with a host name or an address".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls() {
        let check = |text: &str, host: &str, port: u16| {
            let host = host.to_owned();
            let address = ServerAddress::Tcp { host, port };
            assert_eq!(OriginUrl::parse(text).unwrap().address, address, "{text}");
        };
        check("http://localhost:3000", "localhost", 3000);
        check("http://Example.com/", "example.com", 80);
        check("HTTP://10.0.0.1:81", "10.0.0.1", 81);
        check("http://[::1]:3000", "::1", 3000);
        check("http://[::1]", "::1", 80);
        check("https://a", "a", 443);
        check("https://a:8443", "a", 8443);
        assert_eq!(OriginUrl::parse("http://a:81/b/c/").unwrap().path, "/b/c");
        assert_eq!(OriginUrl::parse("http://a/").unwrap().path, "");
        check("fastcgi://a", "a", 9000);
        let protocol = |text| OriginUrl::parse(text).unwrap().protocol;
        assert_eq!(protocol("https://a"), OriginProtocol::Https);
        assert_eq!(protocol("http://a"), OriginProtocol::Http);
        assert_eq!(protocol("fastcgi://unix:/a"), OriginProtocol::FastCgi);
    }

    #[test]
    fn sockets_are_named_by_their_path() {
        for text in [
            "http://unix:/run/app.sock",
            "HTTP://unix:/run/app.sock",
            "http://unix:/run/app.sock:/",
            "unix:///run/app.sock",
        ] {
            let url = OriginUrl::parse(text).unwrap();
            assert_eq!(url.address, ServerAddress::Unix("/run/app.sock".into()));
            assert!(url.protocol == OriginProtocol::Http && url.is_socket());
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_a_remedy() {
        let check = |text: &str, says: &str| {
            let why = OriginUrl::parse(text).unwrap_err();
            assert!(why.contains(says), "{text}: {why}");
        };
        check("localhost:3000", "write http://localhost:3000");
        check("3000", "write http://localhost:3000");
        check(":3000", "write http://localhost:3000");
        check("127.0.0.1:3000/app", "write http://127.0.0.1:3000/app");
        check("3000/", "write http://localhost:3000");
        check("/app", "write http://HOST:PORT/app");
        check("ftp://a", "http://");
        check("http://a/b?c", "requests have their own");
        check("http://a?b", "requests have their own");
        check("http://a/b/../c", "without empty segments");
        check("http://a//b", "without empty segments");
        check("http://u:p@a", "password");
        check("http://a:0", "1 to 65535");
        check("http://a:99999", "1 to 65535");
        check("http://a:", "1 to 65535");
        check("http://::1", "brackets");
        check("http://[zz]", "IPv6");
        check("http://", "HOST");
        check("http://a b", "HOST");
        check("", "HOST:PORT");
        check("unix:/run/a.sock", "write http://unix:/run/a.sock");
        check("/run/a.sock", "write http://unix:/run/a.sock");
        check("https://unix:/run/a.sock", "no TLS");
        check("http://unix:a.sock", "full path");
        check("http://unix:@a", "full path");
        check("http://unix:/run/", "full path");
        check("http://unix:/run/a.sock:/api", "requests have their own");
        check(&format!("http://unix:/{}", "a".repeat(107)), "107 bytes");
    }
}
