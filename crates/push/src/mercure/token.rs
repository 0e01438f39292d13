//! Permissions of tokens: publishing to topics, and reading private updates.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use url::Url;

use super::selector::{Selector, SelectorCache, SelectorError};
use crate::access::token_key::{JwtError, TokenKey, expiry};

/// Limit of selectors in a token.
const MAX_SELECTORS: usize = 1000;
/// Length limit of a payload as JSON, in bytes: each presence update carries it.
const MAX_PAYLOAD: usize = 4096;
/// The type of authorization details for Mercure (RFC 9396).
const DETAIL: &str = "https://mercure.rocks/authorization-detail";

/// The permissions of a token.
#[derive(Debug, Default)]
pub(crate) struct HubGrant {
    pub(crate) publish: Vec<Selector>,
    pub(crate) subscribe: Vec<Selector>,
    /// Expiry of the token.
    pub(crate) ends: Option<Instant>,
    /// The payloads reported with the subscriber's presence.
    pub(crate) payloads: Payloads,
}

/// The payloads of a token, which are reported with the subscriber's presence.
#[derive(Debug, Default)]
pub(crate) struct Payloads {
    /// Mercure 1.0: the first one counts whose selectors match the subscription.
    by_details: Vec<(Vec<Selector>, Value)>,
    /// Mercure 0.x: applies to all other subscriptions.
    default: Option<Value>,
}

/// Error: a payload is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a payload of the token is longer than {MAX_PAYLOAD} bytes")]
pub(crate) struct PayloadTooLong;

impl Payloads {
    /// Returns the payload of a subscription to this selector.
    pub(crate) fn for_selector(&self, text: &str) -> Result<Option<Arc<RawValue>>, PayloadTooLong> {
        let mut details = self.by_details.iter();
        let named = details.find(|(topics, _)| topics.iter().any(|it| it.matches(text)));
        let Some(payload) = named.map(|(_, it)| it).or(self.default.as_ref()) else {
            return Ok(None);
        };
        let written = to_raw_value(payload).map_err(|_| PayloadTooLong)?;
        if written.get().len() > MAX_PAYLOAD {
            return Err(PayloadTooLong);
        }
        Ok(Some(written.into()))
    }
}

/// Error reading a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GrantError {
    #[error(transparent)]
    Token(#[from] JwtError),
    #[error("the token has an invalid authorization detail")]
    Detail,
    #[error("the token has an invalid topic selector: {0}")]
    Selector(#[from] SelectorError),
    #[error("the token has more than {MAX_SELECTORS} topic selectors")]
    TooMany,
}

/// The claims of a token that are used.
#[derive(Deserialize)]
struct HubClaims {
    exp: Option<f64>,
    mercure: Option<MercureClaim>,
    #[serde(rename = "https://mercure.rocks/")]
    namespaced: Option<MercureClaim>,
    #[serde(default)]
    authorization_details: Vec<Value>,
}

/// The `mercure` claim of Mercure 0.x.
#[derive(Default, Deserialize)]
struct MercureClaim {
    publish: Option<Vec<String>>,
    subscribe: Option<Vec<String>>,
    payload: Option<Value>,
}

/// An authorization detail of Mercure 1.0.
#[derive(Deserialize)]
struct AuthorizationDetail {
    actions: Vec<String>,
    topics: Vec<DetailTopic>,
    payload: Option<Value>,
}

#[derive(Deserialize)]
struct DetailTopic {
    #[serde(rename = "match")]
    text: String,
    match_type: Option<String>,
}

/// The parameters by which tokens are verified.
pub(crate) struct TokenVerifier<'a> {
    pub(crate) key: &'a TokenKey,
    /// Required audience; `None`: any.
    pub(crate) audience: Option<&'a str>,
    pub(crate) selectors: &'a SelectorCache,
    pub(crate) hub: &'a Arc<Url>,
}

impl TokenVerifier<'_> {
    /// Verifies a token and returns its permissions.
    pub(crate) fn grant(&self, token: &[u8]) -> Result<HubGrant, GrantError> {
        let claims: HubClaims = self.key.claims(token, self.audience)?;
        let mut grant = HubGrant {
            ends: claims.exp.map(expiry).transpose()?,
            ..HubGrant::default()
        };
        let claim = claims.mercure.or(claims.namespaced).unwrap_or_default();
        for text in claim.publish.into_iter().flatten() {
            grant.publish.push(self.selectors.topic(&text)?);
        }
        for text in claim.subscribe.into_iter().flatten() {
            grant.subscribe.push(self.selectors.topic(&text)?);
        }
        grant.payloads.default = claim.payload;
        for detail in claims.authorization_details {
            if detail.get("type").and_then(Value::as_str) == Some(DETAIL) {
                let detail =
                    AuthorizationDetail::deserialize(detail).map_err(|_| GrantError::Detail)?;
                self.add(&mut grant, detail)?;
            }
        }
        if grant.publish.len() + grant.subscribe.len() > MAX_SELECTORS {
            return Err(GrantError::TooMany);
        }
        Ok(grant)
    }

    fn add(&self, grant: &mut HubGrant, detail: AuthorizationDetail) -> Result<(), GrantError> {
        if detail.actions.is_empty() || detail.topics.is_empty() {
            return Err(GrantError::Detail);
        }
        let mut topics = Vec::with_capacity(detail.topics.len());
        for topic in &detail.topics {
            let selector = match topic.match_type.as_deref() {
                None | Some("exact") => Selector::exact(&topic.text)?,
                Some("urlpattern") => self.selectors.pattern(&topic.text, self.hub)?,
                Some(_) if topic.text == "*" => Selector::All,
                Some(_) => return Err(GrantError::Detail),
            };
            for action in &detail.actions {
                match action.as_str() {
                    "publish" => grant.publish.push(selector.clone()),
                    "subscribe" => grant.subscribe.push(selector.clone()),
                    _ => {}
                }
            }
            topics.push(selector);
        }
        let subscribes = detail.actions.iter().any(|it| it == "subscribe");
        if let Some(payload) = detail.payload.filter(|_| subscribes) {
            grant.payloads.by_details.push((topics, payload));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use rcgen::{
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    };
    use serde_json::json;

    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::access::token_key::SHORTEST;

    const SECRET: &str = "a secret of thirty-two characters";

    fn now() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_secs()
    }

    fn granted(
        key: &TokenKey,
        audience: Option<&str>,
        token: &str,
    ) -> Result<HubGrant, GrantError> {
        let hub = Arc::new(Url::parse("https://hub.example/.well-known/mercure").expect("a url"));
        let checked = TokenVerifier {
            key,
            audience,
            selectors: &SelectorCache::default(),
            hub: &hub,
        };
        checked.grant(token.as_bytes())
    }

    fn signed(claims: &Value) -> String {
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        encode(&Header::default(), claims, &key).expect("a token")
    }

    /// Checks which of these topics a token with these claims may publish to and read.
    fn check(claims: &Value, publishes: &[&str], reads: &[&str]) {
        let topics = ["a", "b", "/users/1", "https://hub.example/users/1", "{x}"];
        let key = TokenKey::parse(SECRET.as_bytes()).expect("a key");
        let grant = granted(&key, None, &signed(claims)).expect("a grant");
        let of = |selectors: &[Selector]| {
            let mut matched = topics.to_vec();
            matched.retain(|topic| selectors.iter().any(|it| it.matches(topic)));
            matched
        };
        assert_eq!(of(&grant.publish), publishes, "{claims}");
        assert_eq!(of(&grant.subscribe), reads, "{claims}");
    }

    fn refused(claims: &Value) -> String {
        let key = TokenKey::parse(SECRET.as_bytes()).expect("a key");
        let refused = granted(&key, Some("us"), &signed(claims));
        refused.expect_err("no grant").to_string()
    }

    #[test]
    fn claims_of_0_x_are_lists_of_selectors() {
        let all = ["a", "b", "/users/1", "https://hub.example/users/1", "{x}"];
        check(&json!({}), &[], &[]);
        check(&json!({"mercure": {}}), &[], &[]);
        check(
            &json!({"mercure": {"publish": [], "payload": {"x": 1}}}),
            &[],
            &[],
        );
        check(
            &json!({"mercure": {"publish": ["*"], "subscribe": null}}),
            &all,
            &[],
        );
        check(
            &json!({"mercure": {"publish": ["a", "/users/{id}"], "subscribe": ["b", "{x}"]}}),
            &["a", "/users/1"],
            &["a", "b", "{x}"],
        );
        check(
            &json!({"https://mercure.rocks/": {"publish": ["b"]}}),
            &["b"],
            &[],
        );
    }

    #[test]
    fn claims_of_1_0_grant_actions_on_topics() {
        let detail = |actions: Value, topics: Value| json!({"type": DETAIL, "actions": actions, "topics": topics});
        check(
            &json!({"authorization_details": [
                detail(json!(["publish"]), json!([{"match": "a"}, {"match": "{x}"}])),
                detail(json!(["subscribe", "other"]), json!([{"match": "/users/:id", "match_type": "urlpattern"}])),
                {"type": "https://other.example/", "actions": 7},
            ]}),
            &["a", "{x}"],
            &["/users/1", "https://hub.example/users/1"],
        );
        for wrong in [
            detail(json!([]), json!([{"match": "a"}])),
            detail(json!(["publish"]), json!([])),
            detail(json!(["publish"]), json!(["a"])),
            detail(
                json!(["publish"]),
                json!([{"match": "a", "match_type": "Exact"}]),
            ),
            detail(
                json!(["publish"]),
                json!([{"match": "/(", "match_type": "urlpattern"}]),
            ),
            json!({"type": DETAIL}),
        ] {
            // One invalid detail invalidates the token.
            let right = detail(json!(["publish"]), json!([{"match": "*"}]));
            let why = refused(&json!({"aud": "us", "authorization_details": [right, wrong]}));
            assert!(why.contains("token"), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_subscription_event_has_the_payload_of_the_token() {
        let detail = |actions: Value, topics: Value, payload: Value| json!({"type": DETAIL, "actions": actions, "topics": topics, "payload": payload});
        let long = "x".repeat(MAX_PAYLOAD);
        let claims = json!({
            "mercure": {"payload": {"b": 1, "a": "\n"}},
            "authorization_details": [
                detail(json!(["publish"]), json!([{"match": "*"}]), json!(1)),
                detail(json!(["subscribe"]), json!([{"match": "a"}]), json!(2)),
                detail(json!(["subscribe"]), json!([{"match": "a"}, {"match": "b"}]), json!([3])),
                detail(json!(["subscribe"]), json!([{"match": "/x/:y", "match_type": "urlpattern"}]), json!("4")),
                detail(json!(["subscribe"]), json!([{"match": "none"}]), json!(null)),
                detail(json!(["subscribe"]), json!([{"match": "long"}]), json!(long)),
            ],
        });
        let key = TokenKey::parse(SECRET.as_bytes()).expect("a key");
        let grant = granted(&key, None, &signed(&claims)).expect("a grant");
        for (text, expected) in [
            ("a", "2"),
            ("b", "[3]"),
            ("/x/1", "\"4\""),
            ("/x/:y", "\"4\""),
            ("none", r#"{"a":"\n","b":1}"#),
            ("other", r#"{"a":"\n","b":1}"#),
        ] {
            let payload = grant.payloads.for_selector(text).expect("not too long");
            assert_eq!(payload.expect("a payload").get(), expected, "{text}");
        }
        assert_eq!(
            grant.payloads.for_selector("long").err(),
            Some(PayloadTooLong)
        );
        let nothing = granted(&key, None, &signed(&json!({"mercure": {"payload": null}})));
        let payloads = nothing.expect("a grant").payloads;
        assert!(payloads.for_selector("a").expect("not too long").is_none());
    }

    #[test]
    fn a_token_has_a_lifetime_and_an_audience() {
        let key = TokenKey::parse(SECRET.as_bytes()).expect("a key");
        let fine = |claims: Value| granted(&key, Some("us"), &signed(&claims)).expect("a grant");
        assert_eq!(fine(json!({"aud": "us"})).ends, None);
        assert!(
            fine(json!({"aud": ["them", "us"], "exp": now() + 60}))
                .ends
                .is_some()
        );
        assert!(
            fine(json!({"aud": "us", "exp": 4_102_444_800.5, "nbf": now() + 1}))
                .ends
                .is_some()
        );
        for claims in [
            json!({}),
            json!({"aud": "them"}),
            json!({"aud": []}),
            json!({"aud": "us", "exp": now()}),
            json!({"aud": "us", "exp": now() - 1}),
            json!({"aud": "us", "exp": -1}),
            json!({"aud": "us", "exp": "never"}),
            json!({"aud": "us", "nbf": now() + 60}),
            json!({"aud": "us", "nbf": "soon"}),
            json!({"aud": "us", "mercure": {"publish": "*"}}),
            json!({"aud": "us", "mercure": {"publish": ["x".repeat(2000)]}}),
            json!({"aud": "us", "mercure": {"publish": vec!["x"; MAX_SELECTORS + 1]}}),
        ] {
            refused(&claims);
        }
        // The audience is ignored unless one is configured.
        assert!(granted(&key, None, &signed(&json!({"aud": "them"}))).is_ok());
    }

    #[test]
    fn algorithms_follow_from_the_key() {
        let claims = json!({"mercure": {"publish": ["*"]}});
        let with = |algorithm, key: &EncodingKey| {
            let mut header = Header::new(algorithm);
            header.typ = Some("at+jwt".to_owned());
            encode(&header, &claims, key).expect("a token")
        };
        let pair = |algorithm| {
            let pair = KeyPair::generate_for(algorithm).expect("a key");
            (pair.public_key_pem(), pair.serialize_pem())
        };
        let (rsa, rsa_private) = pair(&PKCS_RSA_SHA256);
        let (p256, p256_private) = pair(&PKCS_ECDSA_P256_SHA256);
        let (p384, p384_private) = pair(&PKCS_ECDSA_P384_SHA384);
        let (ed, ed_private) = pair(&PKCS_ED25519);
        let by_rsa = EncodingKey::from_rsa_pem(rsa_private.as_bytes()).expect("a key");
        let by_p256 = EncodingKey::from_ec_pem(p256_private.as_bytes()).expect("a key");
        let by_p384 = EncodingKey::from_ec_pem(p384_private.as_bytes()).expect("a key");
        let by_ed = EncodingKey::from_ed_pem(ed_private.as_bytes()).expect("a key");
        let by_secret = EncodingKey::from_secret(SECRET.as_bytes());
        let tokens: Vec<_> = [
            (Algorithm::HS256, &by_secret),
            (Algorithm::HS512, &by_secret),
            (Algorithm::RS256, &by_rsa),
            (Algorithm::PS512, &by_rsa),
            (Algorithm::ES256, &by_p256),
            (Algorithm::ES384, &by_p384),
            (Algorithm::EdDSA, &by_ed),
        ]
        .map(|(algorithm, key)| with(algorithm, key))
        .into();
        for (key, those) in [
            (SECRET, 0..2),
            (&*rsa, 2..4),
            (&*p256, 4..5),
            (&*p384, 5..6),
            (&*ed, 6..7),
        ] {
            let key = TokenKey::parse(key.as_bytes()).expect("a key");
            for (number, token) in tokens.iter().enumerate() {
                let is_granted = granted(&key, None, token).is_ok();
                assert_eq!(is_granted, those.contains(&number), "{number} by {those:?}");
            }
        }
        // A public key is not an HMAC secret: otherwise anyone could sign tokens with it.
        for public in [&rsa, &p256, &ed] {
            for secret in [public.as_str(), public.trim_end()] {
                let forged = with(
                    Algorithm::HS256,
                    &EncodingKey::from_secret(secret.as_bytes()),
                );
                let key = TokenKey::parse(public.as_bytes()).expect("a key");
                assert!(granted(&key, None, &forged).is_err());
            }
        }
        for private in [&rsa_private, &p256_private, &ed_private] {
            assert!(TokenKey::parse(private.as_bytes()).is_none());
        }
        assert!(TokenKey::parse(&[b'x'; SHORTEST - 1]).is_none());
        assert!(
            TokenKey::parse(b"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----")
                .is_none()
        );
    }

    #[test]
    fn forged_tokens_are_none() {
        let key = TokenKey::parse(SECRET.as_bytes()).expect("a key");
        let token = signed(&json!({"mercure": {"publish": ["a"]}}));
        let other = signed(&json!({"mercure": {"publish": ["*"]}}));
        let parts: Vec<_> = token.split('.').collect();
        let others: Vec<_> = other.split('.').collect();
        // `{"alg":"none"}`, and a variant with another capitalization.
        let none = ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIn0"];
        assert!(granted(&key, None, &token).is_ok());
        for forged in [
            String::new(),
            "..".to_owned(),
            "a.b.c".to_owned(),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            format!("{}.{}.{}", parts[0], others[1], parts[2]),
            format!("{}.{}.", none[0], parts[1]),
            format!("{}.{}.{}", none[0], parts[1], parts[2]),
            format!("{}.{}.", none[1], parts[1]),
            format!("{token}."),
            format!("{token}A"),
            format!("{token}.{token}"),
            "\u{0}".repeat(1000),
            format!("{}.{}.{}", "A".repeat(10_000), parts[1], parts[2]),
        ] {
            assert!(granted(&key, None, &forged).is_err(), "{forged:.80}");
        }
        let elsewhere = EncodingKey::from_secret(b"another secret of so many characters");
        let stranger = encode(&Header::default(), &json!({}), &elsewhere).expect("a token");
        assert!(granted(&key, None, &stranger).is_err());
    }

    /// The token of the published test suite of Mercure.
    #[test]
    fn the_token_of_the_published_cases_is_understood() {
        let key = TokenKey::parse(b"!ChangeThisMercureHubJWTSecretKey!").expect("a key");
        let grant = granted(
            &key,
            Some("https://localhost/.well-known/mercure"),
            PUBLISHED,
        )
        .expect("a grant");
        assert!(grant.publish.iter().all(|it| it.matches("anything")) && !grant.publish.is_empty());
        assert!(grant.ends.is_some());
    }

    const PUBLISHED: &str = concat!(
        "eyJhbGciOiJIUzI1NiIsInR5cCI6ImF0K2p3dCJ9.eyJhdWQiOiJodHRwczovL2xvY2FsaG9zdC8ud2VsbC1rbm93bi9tZXJjdXJlIiwiaXNzIjoiaHR0cHM6Ly9s",
        "b2NhbGhvc3QiLCJhdXRob3JpemF0aW9uX2RldGFpbHMiOlt7InR5cGUiOiJodHRwczovL21lcmN1cmUucm9ja3MvYXV0aG9yaXphdGlvbi1kZXRhaWwiLCJhY3Rp",
        "b25zIjpbInB1Ymxpc2giXSwidG9waWNzIjpbeyJtYXRjaCI6IioifV19LHsidHlwZSI6Imh0dHBzOi8vbWVyY3VyZS5yb2Nrcy9hdXRob3JpemF0aW9uLWRldGFp",
        "bCIsImFjdGlvbnMiOlsic3Vic2NyaWJlIl0sInRvcGljcyI6W3sibWF0Y2giOiIqIn1dfV0sImV4cCI6NDEwMjQ0NDgwMH0.z_S8IP5WZsCK8h3pcq0PB5zvJE0",
        "OdTrGA70khAYJQy4",
    );
}
