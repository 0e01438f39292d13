//! Authentication of a route's clients by another server.

use std::time::Duration;

use microcache_push::{READ_FIELD, READ_TTL_FIELD};

use super::origin_url::OriginUrl;
use super::place::Place;
use crate::upstream::settings::{GroupSettings, OriginProtocol, ServerSettings};

/// Authentication of a route's clients by another server.
#[derive(Clone, Debug)]
pub struct ForwardAuth {
    pub(super) url: Option<AuthUrl>,
    /// The place of the option.
    pub(super) place: Place,
    pub(super) copied: Vec<String>,
    pub(super) session_cookies: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) kept_for: Duration,
    pub(super) max_concurrent: usize,
    /// True if it only names the private documents that a client may read.
    is_for_readers: bool,
    /// The upstream group of the server, by index.
    pub(super) group: usize,
}

/// The URL of an authentication server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthUrl {
    server: ServerSettings,
    authority: String,
    target: String,
}

impl AuthUrl {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let begin = text.find("://").map_or(0, |at| at + 3);
        let end = text[begin..].find('/').map_or(text.len(), |at| begin + at);
        let (base, target) = text.split_at(end);
        if !target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
        {
            return Err("write the path without blanks and `#`".to_owned());
        }
        let url = OriginUrl::parse(base)?;
        if url.protocol == OriginProtocol::FastCgi || url.is_socket() {
            return Err("write the URL of a server that speaks HTTP over TCP".to_owned());
        }
        let server = ServerSettings {
            protocol: url.protocol,
            ..ServerSettings::at(url.address)
        };
        let target = if target.is_empty() { "/" } else { target };
        Ok(Self {
            server,
            authority: base[begin..].to_owned(),
            target: target.to_owned(),
        })
    }

    pub(super) const fn server(&self) -> &ServerSettings {
        &self.server
    }
}

impl ForwardAuth {
    pub(super) fn new(place: Place) -> Self {
        Self {
            url: None,
            place,
            copied: Vec::new(),
            session_cookies: Vec::new(),
            timeout: Duration::from_secs(2),
            kept_for: Duration::ZERO,
            max_concurrent: 64,
            is_for_readers: false,
            group: 0,
        }
    }

    /// Returns the same for a server that only names the private documents that a client may read.
    pub(super) fn of_readers(self) -> Self {
        Self {
            copied: [READ_FIELD, READ_TTL_FIELD].map(str::to_owned).into(),
            is_for_readers: true,
            ..self
        }
    }

    /// Returns whether it only names the private documents that a client may read.
    pub(crate) const fn is_for_readers(&self) -> bool {
        self.is_for_readers
    }

    /// The host of the server, and its port unless it is the usual one.
    pub(crate) fn authority(&self) -> &str {
        self.url.as_ref().map_or("", |url| &url.authority)
    }

    /// The path and query of the server's URL.
    pub(crate) fn target(&self) -> &str {
        self.url.as_ref().map_or("/", |url| &url.target)
    }

    /// The fields of its responses that are set on requests to the application.
    pub(crate) fn copied(&self) -> &[String] {
        &self.copied
    }

    /// The maximum time of a decision.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The time for which an admission is kept; zero for not at all.
    pub(crate) const fn kept_for(&self) -> Duration {
        self.kept_for
    }

    /// The index of the server's upstream group.
    pub(crate) const fn group(&self) -> usize {
        self.group
    }

    /// Returns whether it asks the same server about the same URL.
    pub(super) fn has_url_of(&self, other: &Self) -> bool {
        self.url == other.url
    }

    /// Returns the upstream group of the server, with a small pool of connections.
    pub(super) fn settings(&self, url: &AuthUrl, defaults: &GroupSettings) -> GroupSettings {
        GroupSettings {
            name: format!("auth {}", url.authority),
            servers: vec![url.server.clone()],
            max_concurrent: self.max_concurrent,
            max_queue: self.max_concurrent * 4,
            queue_timeout: self.timeout,
            connect_timeout: self.timeout,
            first_byte_timeout: self.timeout,
            between_bytes_timeout: self.timeout,
            max_idle: 8,
            health: None,
            host: None,
            ..defaults.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_path() {
        let check = |text: &str, authority: &str, target: &str| {
            let url = AuthUrl::parse(text).expect(text);
            assert_eq!(
                (&*url.authority, &*url.target),
                (authority, target),
                "{text}"
            );
        };
        check("http://127.0.0.1:9091/verify", "127.0.0.1:9091", "/verify");
        check(
            "https://auth.example/a?rd=https://b/",
            "auth.example",
            "/a?rd=https://b/",
        );
        check("http://[::1]:9091", "[::1]:9091", "/");
        for wrong in [
            "",
            "/verify",
            "127.0.0.1:9091/verify",
            "ftp://a/",
            "http:///a",
            "http://a/b c",
        ] {
            assert!(AuthUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
