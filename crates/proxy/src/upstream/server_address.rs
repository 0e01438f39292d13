//! The address of an origin server.

use std::fmt;
use std::path::PathBuf;

/// Address of an origin server, shown as `host:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// Host and port.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ServerAddress {
    /// Returns the address as a URL has it: brackets around an IPv6 address, and no default port.
    pub fn authority(&self, default_port: u16) -> String {
        match self {
            Self::Tcp { host, port } => {
                let host = if host.contains(':') {
                    format!("[{host}]")
                } else {
                    host.clone()
                };
                if *port == default_port {
                    host
                } else {
                    format!("{host}:{port}")
                }
            }
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_operators_write_them() {
        let tcp = |host: &str, port| ServerAddress::Tcp {
            host: host.to_owned(),
            port,
        };
        for (address, shown, authority) in [
            (tcp("a", 80), "a:80", "a"),
            (tcp("a", 81), "a:81", "a:81"),
            (tcp("::1", 80), "::1:80", "[::1]"),
            (tcp("::1", 81), "::1:81", "[::1]:81"),
            (
                ServerAddress::Unix("/run/app.sock".into()),
                "unix:/run/app.sock",
                "unix:/run/app.sock",
            ),
        ] {
            assert_eq!(address.to_string(), shown);
            assert_eq!(address.authority(80), authority);
        }
    }
}
