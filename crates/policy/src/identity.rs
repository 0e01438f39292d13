//! Request fields that identify the user, besides `Authorization` and cookies: API keys, tokens, signatures, client
//! certificates, and fields of single sign-on. There is no registry of them, so they are recognized by words in their
//! names, and some by the whole name.
//!
//! A false positive costs a hit; a false negative serves one user's page to another.

use smallvec::SmallVec;

use crate::field_name::{FieldName, NameList};
use crate::fields::{FieldLine, Fields};
use crate::known_name::names;
use crate::patterns::takes;
use crate::rules::Rules;
use crate::trust::only_from_trusted_peers;

/// Returns true if a field called `name` identifies the user.
pub fn is_identity(name: &[u8]) -> bool {
    identifies(FieldName::of(name))
}

/// As [`is_identity`], for a name that was looked up before.
pub(crate) fn identifies(name: FieldName<'_>) -> bool {
    /// The known names of them.
    const KNOWN: NameList = NameList::new(&[
        "authorization",
        "persistent-auth",
        "proxy-authentication-info",
        "proxy-authorization",
        "sec-websocket-key",
        "surrogate-key",
    ]);
    if name.is_known() {
        KNOWN.has(name)
    } else {
        is_named_like_one(name.text())
    }
}

/// Returns true if the words of a name say that a field identifies the user.
fn is_named_like_one(name: &[u8]) -> bool {
    let lower: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
    let name = &lower[..];
    if EXCEPTED.iter().any(|one| one.as_bytes() == name) {
        return false;
    }
    NAMES.iter().any(|one| takes(one.as_bytes(), name))
        || name
            .split(|byte| !byte.is_ascii_alphanumeric())
            .any(|word| WORDS.iter().any(|one| one.as_bytes() == word))
}

/// The names of the identifying fields that make a request personal, `Authorization` included: those that the origin
/// sees and that are not part of the key. Fields that only a trusted peer may send are either removed or part of the
/// key.
pub fn identities<'a>(fields: Fields<'a>, rules: &'a Rules) -> impl Iterator<Item = &'a [u8]> {
    let names = fields.lines().map(FieldLine::field_name);
    let personal = names.filter(|&name| identifies(name) && makes_personal(name, rules));
    personal.map(FieldName::text)
}

/// Returns true if an identifying field makes a request personal on a route with these rules.
pub(crate) fn makes_personal(name: FieldName<'_>, rules: &Rules) -> bool {
    !rules.request.removed_fields.matches(name.text())
        && (name.is(names::AUTHORIZATION)
            || !only_from_trusted_peers(name) && !rules.key.has_header(name.text()))
}

/// Words of names, between hyphens.
const WORDS: [&str; 14] = [
    "apikey",
    "auth",
    "authentication",
    "authorization",
    "credential",
    "jwt",
    "key",
    "password",
    "secret",
    "session",
    "sid",
    "signature",
    "token",
    "user",
];

/// Whole names; a `*` at the end matches any suffix.
const NAMES: [&str; 14] = [
    "client-cert*",
    "dpop",
    "remote-email",
    "remote-groups",
    "remote-name",
    "tailscale-*",
    "x-arr-clientcert",
    "x-authentik-*",
    "x-client-cert*",
    "x-client-dn",
    "x-client-verify",
    "x-ms-client-principal*",
    "x-pomerium-*",
    "x-tls-client-*",
];

/// Names with such a word that identify no user: browsers send them in every request.
const EXCEPTED: [&str; 2] = ["sec-fetch-user", "user-agent"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_name::KnownName;
    use crate::rules::KeyRules;
    use crate::testing::fields;

    #[test]
    fn an_identity_field_is_recognized_by_a_whole_word() {
        for name in [
            "Authorization",
            "X-Api-Key",
            "x-auth-token",
            "Private-Token",
            "X-Shop-Token",
            "DPoP",
            "Signature",
            "Signature-Input",
            "X-Hub-Signature-256",
            "X-CSRF-TOKEN",
            "apikey",
            "X-User-Id",
            "X_Session",
            "Cf-Access-Jwt-Assertion",
            "Ocp-Apim-Subscription-Key",
            "X-ARR-ClientCert",
            "Client-Cert",
            "Client-Cert-Chain",
            "X-Client-Cert-Subject",
            "Remote-Groups",
            "X-Authentik-Username",
            "X-MS-CLIENT-PRINCIPAL-ID",
            "Sec-WebSocket-Key",
            "Idempotency-Key",
        ] {
            assert!(is_identity(name.as_bytes()), "{name}");
        }
        for name in [
            "User-Agent",
            "Sec-Fetch-User",
            "Accept",
            "Host",
            "X-Author",
            "X-Keyboard",
            "X-Tokens-Left",
            "Keep-Alive",
            "X-Users",
            "Cookie",
            "",
            "-",
        ] {
            assert!(!is_identity(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn known_names_are_judged_by_their_words_too() {
        for name in KnownName::all() {
            let text = name.as_str().as_bytes();
            assert_eq!(is_identity(text), is_named_like_one(text), "{name:?}");
        }
    }

    #[test]
    fn keyed_and_removed_fields_make_no_request_personal() {
        let mut rules = Rules {
            key: KeyRules {
                headers: vec!["X-Tenant-Key".to_owned(), "x-shop-*".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        rules.request.removed_fields.push("x-old-token");
        let request = fields(
            "Accept: a\nx-tenant-key: 1\nX-Shop-Token: 2\nX-Old-Token: 3\nX-Forwarded-User: 4\n\
             api_key: 5\nX-Api-Key: 6\nAuthorization: 7",
        );
        let names: Vec<_> = identities(request.fields(), &rules).collect();
        assert_eq!(names, [&b"X-Api-Key"[..], b"Authorization"]);
    }
}
