//! The URLs of origins.

/// The host and port of an origin's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OriginUrl {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl OriginUrl {
    /// Parses `http://host:port` or `https://host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(write_with_scheme(text));
        };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err("an origin must be http:// or https://".to_owned()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(
                "an origin is a host and a port: remove the path, since requests have their own"
                    .to_owned(),
            );
        }
        if authority.contains('@') {
            return Err("remove user name and password".to_owned());
        }
        let (host, port) = split_port(authority, if tls { 443 } else { 80 })?;
        check_host(host)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_ascii_lowercase(),
            port,
            tls,
        })
    }
}

/// Returns what to write in place of an origin without a scheme.
fn write_with_scheme(text: &str) -> String {
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
        "" | "/" => format!("write {url}"),
        _ => format!("write {url} without {path}: requests have paths of their own"),
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
            let url = OriginUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
        };
        check("http://localhost:3000", "localhost", 3000);
        check("http://Example.com/", "example.com", 80);
        check("HTTP://10.0.0.1:81", "10.0.0.1", 81);
        check("http://[::1]:3000", "::1", 3000);
        check("http://[::1]", "::1", 80);
        check("https://a", "a", 443);
        check("https://a:8443", "a", 8443);
        assert!(OriginUrl::parse("https://a").unwrap().tls);
        assert!(!OriginUrl::parse("http://a").unwrap().tls);
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
        check(
            "127.0.0.1:3000/app",
            "write http://127.0.0.1:3000 without /app",
        );
        check("3000/", "write http://localhost:3000");
        check("/app", "write http://HOST:PORT without /app");
        check("ftp://a", "http://");
        check("http://a/b", "path");
        check("http://a?b", "path");
        check("http://u:p@a", "password");
        check("http://a:0", "1 to 65535");
        check("http://a:99999", "1 to 65535");
        check("http://a:", "1 to 65535");
        check("http://::1", "brackets");
        check("http://[zz]", "IPv6");
        check("http://", "HOST");
        check("http://a b", "HOST");
        check("", "HOST:PORT");
    }
}
