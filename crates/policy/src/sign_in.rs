//! Connection-based authentication (RFC 4559 §6): later requests on a connection belong to the user who was
//! authenticated on it, without any field that indicates it.

use crate::fields::{FieldLine, Fields};
use crate::known_name::names;

/// The authentication schemes that work like this.
const SCHEMES: [&str; 4] = ["ntlm", "negotiate", "kerberos", "credssp"];

/// Returns true if a request authenticates its connection, or is a step of that exchange.
pub fn signs_in(request: Fields<'_>) -> bool {
    let credentials = |name| request.values(name).any(names_scheme);
    credentials(names::AUTHORIZATION) || credentials(names::PROXY_AUTHORIZATION)
}

/// Returns true for a response line that challenges the client to authenticate its connection, or confirms it.
#[inline]
pub(crate) fn is_challenge(line: FieldLine<'_>) -> bool {
    match line.known() {
        Some(names::PERSISTENT_AUTH) => true,
        Some(names::WWW_AUTHENTICATE | names::PROXY_AUTHENTICATE) => names_scheme(line.value()),
        _ => false,
    }
}

/// Quotes are ignored: a false positive costs a connection, a false negative would hand it to another user.
fn names_scheme(value: &[u8]) -> bool {
    value.split(|&b| b == b',').any(|member| {
        let member = member.trim_ascii();
        let end = member.iter().position(|b| !b.is_ascii_alphanumeric());
        let scheme = &member[..end.unwrap_or(member.len())];
        SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_sign_a_connection_in() {
        for (block, expected) in [
            ("", false),
            ("Authorization: NTLM TlRMTVNTUAAB\r\n", true),
            ("authorization: negotiate\tYII=\r\n", true),
            (
                "Authorization: Basic YTpi\r\nAuthorization: nTlM x\r\n",
                true,
            ),
            ("Authorization: Kerberos x\r\n", true),
            ("Proxy-Authorization: NTLM x\r\n", true),
            ("Authorization: Basic TlRM\r\n", false),
            ("Authorization: Bearer NTLM\r\n", false),
            ("Authorization: NTLMv9 x\r\n", false),
            ("X-Authorization: NTLM x\r\n", false),
        ] {
            assert_eq!(signs_in(Fields::new(block.as_bytes())), expected, "{block}");
        }
    }

    #[test]
    fn responses_that_require_a_sign_in() {
        for (block, expected) in [
            ("", false),
            ("WWW-Authenticate: NTLM\r\n", true),
            ("WWW-Authenticate: Negotiate oYG2\r\n", true),
            ("www-authenticate: Basic realm=\"a\", negotiate\r\n", true),
            (
                "WWW-Authenticate: Basic realm=\"a\r\nWWW-Authenticate: ntlm\r\n",
                true,
            ),
            ("WWW-Authenticate: Basic realm=\"unclosed, NTLM\r\n", true),
            ("Proxy-Authenticate: NTLM\r\n", true),
            ("Persistent-Auth: true\r\n", true),
            ("WWW-Authenticate: Basic realm=\"ntlm\"\r\n", false),
            ("WWW-Authenticate: Bearer\r\n", false),
        ] {
            assert_eq!(
                Fields::new(block.as_bytes()).lines().any(is_challenge),
                expected,
                "{block}"
            );
        }
    }
}
