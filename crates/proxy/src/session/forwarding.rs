//! Request fields for the origin, and the client that they name.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use microcache_policy::cookies::{self, Rewritten};
use microcache_policy::edge::CAPABILITY;
use microcache_policy::field_template::TemplateValues;
use microcache_policy::network::address;
use microcache_policy::{
    FieldForwarding, FieldName, Fields, FieldsBuf, LineStart, MaxForwards, RequestRules, Scheme,
    field_forwarding, hop, is_believed, is_trace_field, max_forwards, names, says_https,
    trace_travels, visitor_used_tls,
};
use parking_lot::Mutex;

use crate::config::{Cidr, forwarded_client};
use crate::tls::ClientCertificate;
use microcache_policy::Network;

/// Client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Address. Unknown for some clients behind a proxy with the PROXY protocol.
    address: Option<IpAddr>,
    /// Address of that proxy.
    through: Option<IpAddr>,
}

impl Caller {
    /// A direct client.
    pub(crate) const fn at(address: IpAddr) -> Self {
        Self {
            address: Some(address),
            through: None,
        }
    }

    /// A client behind a proxy with the PROXY protocol.
    pub(crate) const fn through(proxy: IpAddr, address: Option<IpAddr>) -> Self {
        Self {
            address,
            through: Some(proxy),
        }
    }

    /// Returns the network that the client is counted as. All clients of unknown address are one.
    pub(crate) fn network(&self) -> Network {
        let known = self.address.or(self.through);
        known.map_or(Network::from_bits(0), Network::of)
    }

    /// Returns `true` if the client's address is in one of these blocks.
    pub(crate) fn is_in(&self, blocks: &[Cidr]) -> bool {
        let is_in = |address| blocks.iter().any(|range| range.contains(address));
        self.address.is_some_and(is_in)
    }
}

const FOR: LineStart = LineStart::of("X-Forwarded-For: ");
const PROTO: LineStart = LineStart::of("X-Forwarded-Proto: ");
const HOST: LineStart = LineStart::of("X-Forwarded-Host: ");
const FORWARDED: LineStart = LineStart::of("Forwarded: ");

/// Form of an address that is not known (RFC 7239 §6.3).
const UNKNOWN: &str = "unknown";

/// Returns the text of an address. Every connection needs it, so IPv4 addresses do without the formatting machinery.
fn text_of(address: IpAddr) -> Arc<str> {
    let IpAddr::V4(v4) = address else {
        return address.to_string().into();
    };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (at, octet) in v4.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
    text.into()
}

/// Peer of a connection, with the form of its address in requests.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    caller: Caller,
    /// Address as written in every forwarded request.
    text: Arc<str>,
    is_v6: bool,
    /// The peer is a trusted proxy.
    pub(crate) trusted: bool,
    pub(crate) scheme: Scheme,
    /// Certificate that the client has presented.
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

impl Peer {
    pub(crate) fn new(caller: Caller, scheme: Scheme, trusted: &[Cidr]) -> Self {
        let address = caller.address.map(|address| address.to_canonical());
        Self {
            caller,
            text: address.map_or_else(|| Arc::from(UNKNOWN), text_of),
            is_v6: address.is_some_and(|address| address.is_ipv6()),
            trusted: caller.is_in(trusted),
            scheme,
            certificate: None,
        }
    }

    /// Re-evaluates trust after a change of the configuration.
    pub(crate) fn judge(&mut self, trusted: &[Cidr]) {
        self.trusted = self.caller.is_in(trusted);
    }

    /// Returns the client of a request: the peer, or the last address in the forwarding fields that is not a
    /// trusted proxy, if the peer is one. Addresses before that are not reliable.
    pub(crate) fn client(&self, request: Fields<'_>, trusted: &[Cidr]) -> Network {
        match self.client_address(request, trusted) {
            Some(address) => Network::of(address),
            None => self.caller.network(),
        }
    }

    /// Returns the address of a request's client, if it is known: see [`Self::client`].
    pub(crate) fn client_address(&self, request: Fields<'_>, trusted: &[Cidr]) -> Option<IpAddr> {
        let address = self.caller.address?;
        Some(client_address(address, self.trusted, request, trusted))
    }

    /// Returns the address of a request's client as text.
    pub(crate) fn client_text(&self, request: Fields<'_>, trusted: &[Cidr]) -> Arc<str> {
        match self.caller.address {
            Some(address) if self.trusted => {
                let client = client_address(address, true, request, trusted);
                client.to_canonical().to_string().into()
            }
            _ => Arc::clone(&self.text),
        }
    }

    /// Returns the certificate of the client, unless it has expired.
    pub(crate) fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.certificate.as_ref().filter(|it| it.is_valid())
    }

    /// Returns the address of the proxy with the PROXY protocol.
    pub(crate) const fn through(&self) -> Option<IpAddr> {
        self.caller.through
    }

    pub(crate) fn address(&self) -> &str {
        &self.text
    }

    pub(crate) fn shared_address(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

/// Returns the address of a request's client: see [`Peer::client`].
pub(crate) fn client_address(
    peer: IpAddr,
    is_trusted: bool,
    request: Fields<'_>,
    trusted: &[Cidr],
) -> IpAddr {
    let named = is_trusted.then(|| forwarded_client(request, trusted));
    named.flatten().unwrap_or(peer)
}

/// Returns the fields for the origin's request, with those of an upgrade if it is passed on, and without
/// `Host`, which the writer of the request adds. [`field_forwarding`] decides which fields are forwarded.
pub(crate) fn outgoing(
    method: &Method,
    request: Fields<'_>,
    upgrade: bool,
    host: &[u8],
    peer: &Peer,
    rules: &RequestRules,
) -> FieldsBuf {
    let mut fields = FieldsBuf::indexed(request.as_block().len() + host.len());
    let nominated = hop::NominatedFields::by(request);
    let max_forwards = max_forwards(method, request);
    let cookie = cookies::rewritten(request, rules);
    let trace = trace_travels(request);
    fields.extend_lines(request, |line| {
        let name = line.field_name();
        field_forwarding(name, peer.trusted, rules) == FieldForwarding::Forwarded
            && !nominated.stays_behind(name)
            && (trace || !is_trace_field(name))
            && (cookie == Rewritten::Unchanged || !name.is(names::COOKIE))
            && (max_forwards == MaxForwards::Unlimited || !name.is(names::MAX_FORWARDS))
    });
    if let Rewritten::Line(line) = cookie {
        fields.push("Cookie", line);
    }
    if let MaxForwards::Left(left) = max_forwards {
        fields.push("Max-Forwards", left.to_string());
    }
    if upgrade {
        for value in request.values(names::UPGRADE) {
            fields.push("Upgrade", value);
        }
    }
    push_forwarding(&mut fields, request, host, peer, rules);
    fields
}

/// Writes the operator's fields in place of the client's.
#[cold]
pub(crate) fn set_fields(
    fields: &mut FieldsBuf,
    rules: &RequestRules,
    values: &TemplateValues<'_>,
) {
    fields.retain(|name, _| !rules.sets(name));
    for edit in &rules.set_fields {
        fields.push_joined(edit.name.as_bytes(), &edit.value.resolve(values));
    }
}

/// Announces to the origin that tags are replaced, whatever surrogates a client names: a page is the same for all of them.
/// Its body has to be readable.
pub(crate) fn announce_composition(outgoing: &mut FieldsBuf) {
    outgoing.set("Surrogate-Capability", CAPABILITY);
    outgoing.set("Accept-Encoding", "identity");
}

/// Untrusted peers that claim that the visitor used TLS. Overwriting their claim is right for a stranger; for
/// the operator's own TLS terminator it causes endless redirects.
#[derive(Debug, Default)]
pub(crate) struct UntrustedForwarders {
    reported: Mutex<Vec<Arc<str>>>,
}

/// Most of them to report; the set is controlled by clients.
const MOST_REPORTED: usize = 8;

impl UntrustedForwarders {
    /// Returns the notice for a request, if it is this peer's first of the kind.
    pub(crate) fn notice(&self, request: Fields<'_>, peer: &Peer) -> Option<String> {
        if peer.trusted || peer.scheme == Scheme::Https || !says_https(request) {
            return None;
        }
        let mut reported = self.reported.lock();
        if reported.len() >= MOST_REPORTED || reported.contains(&peer.text) {
            return None;
        }
        reported.push(Arc::clone(&peer.text));
        let address = &peer.text;
        Some(format!(
            "{address} forwards a request as https, but the application receives http, because {address} is not in \
             `trusted_proxies`; if it is your TLS terminator, add it there; otherwise ignore this"
        ))
    }
}

/// Adds the fields with the client, the host and the scheme. A trusted proxy's own values come first, or stand.
/// `Forwarded` says the same as the others: some frameworks prefer it.
fn push_forwarding(
    fields: &mut FieldsBuf,
    request: Fields<'_>,
    host: &[u8],
    peer: &Peer,
    rules: &RequestRules,
) {
    let known = if peer.trusted {
        request
    } else {
        Fields::default()
    };
    let said = |name| known.value(name);
    let scheme = match said(names::X_FORWARDED_PROTO) {
        _ if visitor_used_tls(known, &rules.trusted_fields) => Scheme::Https,
        Some(_) => Scheme::Http,
        None => peer.scheme,
    };
    let goes = |line: LineStart| !rules.removed_fields.matches(line.name().as_bytes());
    let (address, scheme) = (peer.text.as_bytes(), scheme.as_str().as_bytes());
    if goes(FOR) {
        let earlier = known.values(names::X_FORWARDED_FOR).map(Cow::from);
        fields.push_line(FOR, [&joined(earlier), address]);
    }
    if goes(PROTO) {
        let said_scheme = said(names::X_FORWARDED_PROTO).unwrap_or(scheme);
        fields.push_line(PROTO, [said_scheme]);
    }
    if goes(HOST) {
        fields.push_line(HOST, [said(names::X_FORWARDED_HOST).unwrap_or(host)]);
    }
    if goes(FORWARDED) {
        let (before, after) = quotes(peer.is_v6);
        let element: [&[u8]; _] = [
            &joined(earlier_elements(known, rules)),
            b"for=",
            before.as_bytes(),
            address,
            after.as_bytes(),
            b";host=\"",
            host,
            b"\";proto=",
            scheme,
        ];
        fields.push_line(FORWARDED, element);
    }
}

/// Returns the members of a list before the last one, with a comma behind each.
fn joined<'a>(earlier: impl IntoIterator<Item = Cow<'a, [u8]>>) -> Vec<u8> {
    let mut list = Vec::new();
    for member in earlier {
        list.extend_from_slice(&member);
        list.extend_from_slice(b", ");
    }
    list
}

/// Returns the elements of `Forwarded` before that of the peer: the trusted proxy's own where it sets them, else the
/// addresses of its `X-Forwarded-For` (RFC 7239 §7.4).
fn earlier_elements<'a>(known: Fields<'a>, rules: &RequestRules) -> Vec<Cow<'a, [u8]>> {
    if is_believed(FieldName::of(b"forwarded"), &rules.trusted_fields) {
        return known.values(names::FORWARDED).map(Cow::from).collect();
    }
    let element = |member| match address(member) {
        Some(address) => {
            let (before, after) = quotes(address.is_ipv6());
            Cow::from(format!("for={before}{address}{after}").into_bytes())
        }
        None => Cow::from(&b"for=unknown"[..]),
    };
    known
        .members(names::X_FORWARDED_FOR.as_str())
        .map(element)
        .collect()
}

/// An IPv6 address is bracketed and therefore quoted (RFC 7239 §6).
const fn quotes(is_v6: bool) -> (&'static str, &'static str) {
    if is_v6 { ("\"[", "]\"") } else { ("", "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Caller {
        Caller::at(address.parse().expect("an address"))
    }

    #[test]
    fn the_text_of_an_address_is_canonical() {
        let text = |caller| Peer::new(caller, Scheme::Http, &[]).text;
        for address in ["0.0.0.0", "10.200.3.99", "255.255.255.255", "2001:db8::1"] {
            assert_eq!(*text(at(address)), *address);
        }
        assert_eq!(*text(at("::ffff:192.0.2.1")), *"192.0.2.1");
        assert_eq!(
            *text(Caller::through(IpAddr::from([10, 0, 0, 1]), None)),
            *UNKNOWN
        );
    }

    #[test]
    fn the_client_is_the_last_address_not_forwarded_by_a_trusted_proxy() {
        let trusted: Vec<Cidr> = vec!["10.0.0.0/8".parse().expect("a block")];
        let client = |peer: &str, field: &str| {
            let peer = Peer::new(at(peer), Scheme::Http, &trusted);
            let fields = format!("X-Forwarded-For: {field}\r\n");
            peer.client(Fields::new(fields.as_bytes()), &trusted)
                .to_string()
        };
        assert_eq!(client("192.0.2.7", "6.6.6.6"), "192.0.2.7");
        assert_eq!(client("10.0.0.1", "192.0.2.7"), "192.0.2.7");
        assert_eq!(client("10.0.0.1", "6.6.6.6, 192.0.2.7"), "192.0.2.7");
        assert_eq!(client("10.0.0.1", "192.0.2.7, 10.0.0.2"), "192.0.2.7");
        assert_eq!(client("10.0.0.1", "[2001:db8::7]:4711"), "2001:db8::/64");
        assert_eq!(client("10.0.0.1", "6.6.6.6, nonsense"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", "nonsense, 10.0.0.2"), "10.0.0.2");
        assert_eq!(client("10.0.0.1", ""), "10.0.0.1");
    }

    #[test]
    fn a_proxy_header_names_the_client() {
        let trusted: Vec<Cidr> = vec!["10.0.0.0/8".parse().expect("a block")];
        let proxy = "10.0.0.1".parse().expect("an address");
        let fields = |address: Option<&str>| {
            let address = address.map(|address| address.parse().expect("an address"));
            let caller = Caller::through(proxy, address);
            let mut peer = Peer::new(caller, Scheme::Http, &trusted);
            peer.judge(&trusted);
            let said = Fields::new(b"X-Forwarded-For: 6.6.6.6\r\n");
            let rules = RequestRules::default();
            let fields = outgoing(&Method::GET, said, false, b"h", &peer, &rules);
            let get =
                |name| String::from_utf8_lossy(fields.fields().get(name).unwrap()).into_owned();
            (peer.trusted, get("x-forwarded-for"), get("forwarded"))
        };
        let reported = |trusted, address: &str, node: &str| {
            let element = format!("{node};host=\"h\";proto=http");
            (trusted, address.to_owned(), element)
        };
        let client = reported(false, "192.0.2.7", "for=192.0.2.7");
        assert_eq!(fields(Some("192.0.2.7")), client);
        // Another trusted proxy, which appends to the fields it received.
        let (trusted, address, _) = fields(Some("10.0.0.2"));
        assert_eq!((trusted, &*address), (true, "6.6.6.6, 10.0.0.2"));
        // An unknown address is never trusted.
        assert_eq!(fields(None), reported(false, "unknown", "for=unknown"));
        let unknown = Caller::through(proxy, None);
        assert_eq!(unknown.network(), Caller::at(proxy).network());
    }

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
            &Peer::new(at(peer), Scheme::Http, &trusted),
            rules,
        );
        let lines: Vec<_> = std::str::from_utf8(fields.fields().as_block())
            .unwrap()
            .lines()
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_untrusted_peer_cannot_set_its_address() {
        check(
            "Host: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Original-URL: /admin\r\nAccept: */*\r\n",
            "10.0.0.1",
            &["192.168.0.0/16"],
            &[
                "Accept: */*",
                "X-Forwarded-For: 10.0.0.1",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h",
                "Forwarded: for=10.0.0.1;host=\"h\";proto=http",
            ],
        );
    }

    #[test]
    fn the_origin_gets_address_scheme_and_host_of_the_client() {
        let peer = Peer::new(at("10.0.0.1"), Scheme::Https, &[]);
        let rules = RequestRules::default();
        let fields = outgoing(&Method::GET, Fields::default(), false, b"h", &peer, &rules);
        let fields = fields.fields();
        assert_eq!(fields.get("x-forwarded-proto"), Some(&b"https"[..]));
        let element = &b"for=10.0.0.1;host=\"h\";proto=https"[..];
        assert_eq!(fields.get("forwarded"), Some(element));
        let says_so = Fields::new(b"X-Forwarded-Proto: https\r\n");
        assert_eq!(
            UntrustedForwarders::default().notice(says_so, &peer),
            None,
            "it is so"
        );
    }

    #[test]
    fn a_route_decides_which_fields_are_forwarded() {
        let rules = RequestRules {
            removed_cookies: ["_ga*", "seen"].into_iter().collect(),
            removed_fields: ["X-Spy-*", "x-forwarded-for", "Forwarded", "h*"]
                .into_iter()
                .collect(),
            kept_fields: ["api_key"].into_iter().collect(),
            ..RequestRules::default()
        };
        check_with(
            &rules,
            "Host: x\r\nCookie: _ga=1;a=2; seen=3\r\nX-Spy-1: a\r\nAPI_key: b\r\nother_key: c\r\nCookie: b=4\r\n",
            "10.0.0.1",
            &[],
            &[
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
                "Accept: */*",
                "X-Forwarded-Proto: http",
                "X-Forwarded-Host: h",
            ],
        );
    }

    #[test]
    fn a_trusted_proxy_sets_the_address_and_is_appended() {
        check(
            "X-Forwarded-For: 2001:db8::7, a;b\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outer\r\n\
             Forwarded: for=6.6.6.6\r\nX-Original-URL: /admin\r\n",
            "::1",
            &["::1/128"],
            &[
                "X-Forwarded-For: 2001:db8::7, a;b, ::1",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: outer",
                "Forwarded: for=\"[2001:db8::7]\", for=unknown, for=\"[::1]\";host=\"h\";proto=https",
            ],
        );
        let rules = RequestRules {
            trusted_fields: ["forwarded", "x-original-*"].into_iter().collect(),
            ..RequestRules::default()
        };
        check_with(
            &rules,
            "Forwarded: for=6.6.6.6;proto=https\r\nX-Original-URL: /shop\r\nX-Real-IP: 6.6.6.6\r\n",
            "10.0.0.1",
            &["10.0.0.1/32"],
            &[
                "X-Original-URL: /shop",
                "X-Forwarded-For: 10.0.0.1",
                "X-Forwarded-Proto: https",
                "X-Forwarded-Host: h",
                "Forwarded: for=6.6.6.6;proto=https, for=10.0.0.1;host=\"h\";proto=https",
            ],
        );
    }

    #[test]
    fn an_untrusted_terminator_is_reported_once() {
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        let forwarders = UntrustedForwarders::default();
        let notice = |address: &str, block: &str| {
            let peer = Peer::new(at(address), Scheme::Http, &trusted);
            forwarders.notice(Fields::new(block.as_bytes()), &peer)
        };
        for block in [
            "Accept: */*\r\n",
            "X-Forwarded-Proto: http\r\nForwarded: for=a;proto=http\r\n",
            "X-Forwarded-For: https\r\nForwarded: for=https, proto\r\n",
        ] {
            assert_eq!(notice("192.0.2.1", block), None, "{block}");
        }
        let https = "X-Forwarded-Proto: https\r\n";
        assert_eq!(notice("10.1.2.3", https), None);
        let reported = notice("192.0.2.1", https).unwrap();
        assert!(
            reported.starts_with("192.0.2.1 ") && reported.contains("`trusted_proxies`"),
            "{reported}"
        );
        assert_eq!(notice("192.0.2.1", https), None);
        for last in 2..=50 {
            let reported = notice(&format!("192.0.2.{last}"), https);
            assert_eq!(reported.is_some(), last <= MOST_REPORTED, "{last}");
        }
    }
}
