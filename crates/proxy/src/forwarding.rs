//! The field lines that go on to the origin, and who the origin is told has asked.

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use microcache_policy::cookies::{self, Rewritten};
use microcache_policy::{
    Fate, Fields, FieldsBuf, MaxForwards, RequestRules, fate, hop, max_forwards,
};

use crate::config::Cidr;

/// Who is at the other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// His address, as it is written in every request that goes on.
    text: Arc<str>,
    is_v6: bool,
    /// It is a proxy of the operator's.
    pub(crate) trusted: bool,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, trusted: &[Cidr]) -> Self {
        let address = address.to_canonical();
        Self {
            text: address.to_string().into(),
            is_v6: address.is_ipv6(),
            trusted: trusted.iter().any(|range| range.contains(address)),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.text
    }

    pub(crate) fn shared_address(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

/// The fields to send to the origin for a request of `peer`, with those of an upgrade if it is to be
/// passed on. Which of them travel is for [`fate`] to say.
pub(crate) fn outgoing(
    method: &Method,
    request: Fields<'_>,
    upgrade: bool,
    host: &[u8],
    peer: &Peer,
    rules: &RequestRules,
) -> FieldsBuf {
    let mut fields = FieldsBuf::with_capacity(request.as_block().len() + host.len());
    fields.push("Host", host);
    let nominated = hop::Nominated::by(request);
    let max_forwards = max_forwards(method, request);
    let cookie = cookies::rewritten(request, rules);
    fields.extend_if(request, |name, _| {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        fate(name, peer.trusted, rules) == Fate::Travels
            && !nominated.stays_behind(name)
            && (cookie == Rewritten::Unchanged || !is(b"cookie"))
            && (max_forwards == MaxForwards::Unlimited || !is(b"max-forwards"))
    });
    if let Rewritten::Line(line) = cookie {
        fields.push("Cookie", line);
    }
    if let MaxForwards::Left(left) = max_forwards {
        fields.push("Max-Forwards", left.to_string());
    }
    if upgrade {
        for value in request.all("upgrade") {
            fields.push("Upgrade", value);
        }
    }
    let known = if peer.trusted {
        request
    } else {
        Fields::default()
    };
    for (name, value) in forwarding(known, host, peer) {
        if !rules.removed_fields.matches(name.as_bytes()) {
            fields.push(name, value);
        }
    }
    fields
}

/// Who has asked, and for which host.
fn forwarding(known: Fields<'_>, host: &[u8], peer: &Peer) -> [(&'static str, Vec<u8>); 4] {
    let address = peer.text.as_bytes();
    let mut element = Vec::with_capacity(64 + host.len());
    element.extend_from_slice(b"for=");
    // RFC 7239 §6: an IPv6 address is bracketed and therefore quoted.
    let (before, after): (&[u8], &[u8]) = if peer.is_v6 {
        (b"\"[", b"]\"")
    } else {
        (b"", b"")
    };
    for part in [before, address, after, b";host=\"", host, b"\";proto=http"] {
        element.extend_from_slice(part);
    }
    let said = |name: &str, otherwise: &[u8]| known.get(name).unwrap_or(otherwise).to_vec();
    [
        (
            "X-Forwarded-For",
            appended(known, "x-forwarded-for", address.to_vec()),
        ),
        ("X-Forwarded-Proto", said("x-forwarded-proto", b"http")),
        ("X-Forwarded-Host", said("x-forwarded-host", host)),
        ("Forwarded", appended(known, "forwarded", element)),
    ]
}

fn appended(known: Fields<'_>, name: &str, last: Vec<u8>) -> Vec<u8> {
    let mut lines = known.all(name).peekable();
    if lines.peek().is_none() {
        return last;
    }
    let mut value = Vec::new();
    for line in lines {
        value.extend_from_slice(line);
        value.extend_from_slice(b", ");
    }
    value.extend_from_slice(&last);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(block: &str, peer: &str, trusted: &[&str], expected: &[&str]) {
        check_with(&RequestRules::default(), block, peer, trusted, expected);
    }

    fn check_with(
        rules: &RequestRules,
        block: &str,
        peer: &str,
        trusted: &[&str],
        expected: &[&str],
    ) {
        let request = Fields::new(block.as_bytes());
        let trusted: Vec<Cidr> = trusted.iter().map(|t| t.parse().unwrap()).collect();
        let fields = outgoing(
            &Method::GET,
            request,
            false,
            b"h",
            &Peer::new(peer.parse().unwrap(), &trusted),
            rules,
        );
        let lines: Vec<_> = std::str::from_utf8(fields.fields().as_block())
            .unwrap()
            .lines()
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_stranger_says_nothing_about_himself() {
        check(
            "Host: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Original-URL: /admin\r\nAccept: */*\r\n",
            "10.0.0.1",
            &["192.168.0.0/16"],
            &[
                "Host: h",
                "Accept: */*",
                "X-Forwarded-For: 10.0.0.1",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h",
                "Forwarded: for=10.0.0.1;host=\"h\";proto=http",
            ],
        );
    }

    #[test]
    fn a_route_decides_what_otherwisetravels() {
        let rules = RequestRules {
            removed_cookies: ["_ga*", "seen"].into_iter().collect(),
            removed_fields: ["X-Spy-*", "x-forwarded-for", "Forwarded", "h*"]
                .into_iter()
                .collect(),
            kept_fields: ["api_key"].into_iter().collect(),
        };
        check_with(
            &rules,
            "Host: x\r\nCookie: _ga=1;a=2; seen=3\r\nX-Spy-1: a\r\nAPI_key: b\r\nother_key: c\r\nCookie: b=4\r\n",
            "10.0.0.1",
            &[],
            &[
                "Host: h",
                "API_key: b",
                "Cookie: a=2; b=4",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h",
            ],
        );
        check_with(
            &rules,
            "Cookie: _ga=1\r\nAccept: */*\r\n",
            "10.0.0.1",
            &["10.0.0.1/32"],
            &[
                "Host: h",
                "Accept: */*",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h",
            ],
        );
    }

    #[test]
    fn a_trusted_proxy_is_believed_and_added_to() {
        check(
            "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\nForwarded: for=6.6.6.6\r\n",
            "::1",
            &["::1/128"],
            &[
                "Host: h",
                "X-Forwarded-For: 6.6.6.6, ::1",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: outer",
                "Forwarded: for=6.6.6.6, for=\"[::1]\";host=\"h\";proto=http",
            ],
        );
    }
}
