//! The WebSocket handshake (RFC 6455 §4.2).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use microcache_engine::{Body, OriginRequest, OriginResponse};
use microcache_policy::Fields;
use sha1_smol::Sha1;

use crate::answer;

/// The constant of `Sec-WebSocket-Accept` (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The protocol version.
const VERSION: &str = "13";

/// A subprotocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subprotocol {
    /// The native one.
    Microcache,
    /// That of Piper, another push cache.
    Piper,
}

impl Subprotocol {
    const fn name(self) -> &'static str {
        match self {
            Self::Microcache => "microcache",
            Self::Piper => "piper-protocol",
        }
    }
}

/// A valid handshake request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    accept: String,
    /// The first offered subprotocol that is supported.
    pub(crate) protocol: Option<Subprotocol>,
}

/// Returns whether a request is a WebSocket handshake, valid or not.
pub(crate) fn is_websocket_request(request: &OriginRequest) -> bool {
    let mut offers = request.fields.fields().members("upgrade");
    request.method == Method::GET
        && request.upgrade
        && offers.any(|offer| offer.eq_ignore_ascii_case(b"websocket"))
}

impl Handshake {
    /// Validates a request for which [`is_websocket_request`] holds.
    pub(crate) fn read(
        request: &OriginRequest,
        supported: &[Subprotocol],
    ) -> Result<Self, OriginResponse> {
        let fields = request.fields.fields();
        if single_value(fields, "sec-websocket-version") != Some(VERSION.as_bytes()) {
            let mut answer = answer::problem(426, "only WebSocket version 13 is supported");
            answer.fields.push("Sec-WebSocket-Version", VERSION);
            answer.fields.push("Upgrade", "websocket");
            return Err(answer);
        }
        if !matches!(request.body, Body::Empty) {
            return Err(answer::problem(
                400,
                "a WebSocket handshake must not have content",
            ));
        }
        let key = single_value(fields, "sec-websocket-key");
        let is_key = |key: &&[u8]| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
        let Some(key) = key.filter(is_key) else {
            return Err(answer::problem(
                400,
                "Sec-WebSocket-Key must be 16 bytes in base64",
            ));
        };
        let offered = fields.members("sec-websocket-protocol");
        let known = offered.filter_map(|name| {
            let mut supported = supported.iter();
            supported.find(|known| known.name().as_bytes() == name)
        });
        Ok(Self {
            accept: accept_key(key),
            protocol: { known }.next().copied(),
        })
    }

    /// Returns the 101 response, without its tunnel.
    pub(crate) fn accept_response(&self) -> OriginResponse {
        let mut answer = answer::bare(101);
        answer.length = None;
        answer.fields.push("Upgrade", "websocket");
        answer
            .fields
            .push("Sec-WebSocket-Accept", self.accept.as_str());
        if let Some(protocol) = self.protocol {
            answer
                .fields
                .push("Sec-WebSocket-Protocol", protocol.name());
        }
        answer
    }
}

/// Returns the value of a field that occurs exactly once.
fn single_value<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let mut values = fields.all(name);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

fn accept_key(key: &[u8]) -> String {
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update(GUID.as_bytes());
    STANDARD.encode(digest.digest().bytes())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn request(fields: &[(&str, &str)]) -> OriginRequest {
        let target = Bytes::from_static(b"/live/x");
        let mut request = OriginRequest::bare(Method::GET, "example.com".into(), target);
        request.upgrade = true;
        for (name, value) in fields {
            request.fields.push(*name, *value);
        }
        request
    }

    fn read(fields: &[(&str, &str)]) -> Result<Handshake, u16> {
        let supported = [Subprotocol::Microcache, Subprotocol::Piper];
        Handshake::read(&request(fields), &supported).map_err(|refused| refused.status)
    }

    #[test]
    fn the_example_of_the_standard_is_agreed_to() {
        let version = ("Sec-WebSocket-Version", "13");
        let with =
            |more: &[(&str, &str)]| read(&[&[version, ("Sec-WebSocket-Key", KEY)], more].concat());
        let agreed = with(&[]).expect("a handshake").accept_response();
        let fields = agreed.fields.fields();
        let accept = &b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="[..];
        assert_eq!(fields.get("sec-websocket-accept"), Some(accept));
        assert_eq!(fields.get("sec-websocket-protocol"), None);
        for (offered, expected) in [
            ("piper-protocol", Some(Subprotocol::Piper)),
            (
                "mqtt, microcache, piper-protocol",
                Some(Subprotocol::Microcache),
            ),
            ("mqtt", None),
        ] {
            let agreed = with(&[("Sec-WebSocket-Protocol", offered)]);
            assert_eq!(agreed.map(|it| it.protocol), Ok(expected), "{offered}");
        }
    }

    #[test]
    fn an_invalid_handshake_is_refused() {
        let (key, version) = (("Sec-WebSocket-Key", KEY), ("Sec-WebSocket-Version", "13"));
        for (fields, expected) in [
            (&[key][..], 426),
            (&[key, ("Sec-WebSocket-Version", "8")], 426),
            (&[key, version, version], 426),
            (&[version], 400),
            (&[version, key, key], 400),
            (&[version, ("Sec-WebSocket-Key", "c2hvcnQ=")], 400),
            (
                &[version, ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ")],
                400,
            ),
            (&[version, ("Sec-WebSocket-Key", "")], 400),
        ] {
            assert_eq!(read(fields), Err(expected), "{fields:?}");
        }
    }

    #[test]
    fn subprotocols_are_not_negotiated_here() {
        for (upgrade, expected) in [
            ("websocket", true),
            ("WebSocket", true),
            ("foo/1, websocket", true),
            ("foo/1", false),
            ("websocket/13", false),
        ] {
            let mut request = request(&[("Upgrade", upgrade)]);
            assert_eq!(is_websocket_request(&request), expected, "{upgrade}");
            request.upgrade = false;
            assert!(!is_websocket_request(&request));
        }
    }
}
