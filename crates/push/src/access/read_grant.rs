//! Read access to private documents: by the publishers' or the readers' secret, by a token (JWT) that
//! lists patterns, or by the response of an authentication server.
//!
//! Access is checked against the name of a document, which has one normal form. Requests for its path,
//! patterns that reach it and commands on a WebSocket all end in the same check.

use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Fields;
use serde::Deserialize;
use tokio::time::Instant;

use crate::access::request_token::RequestToken;
use crate::access::shared_secret::SharedSecret;
use crate::access::token_key::{JwtError, TokenKey, expiry};
use crate::name::{NameError, Pattern};

/// Limit of patterns in a token.
const MAX_PATTERNS: usize = 100;
/// Field with the documents that an authentication server permits reading: names and patterns, separated by spaces.
pub const READ_FIELD: &str = "Microcache-Read";
/// Field with the time for which that counts, in seconds.
pub const READ_TTL_FIELD: &str = "Microcache-Read-TTL";
/// Time without that field, and its limit.
const READ_TTL: Duration = Duration::from_hours(1);
const MAX_READ_TTL: u64 = 24 * 60 * 60;

/// The secrets and keys of publishers and readers.
#[derive(Clone, Debug, Default)]
pub struct PushKeys {
    /// Secret of publishers, which also permits reading everything; `None` disables publishing.
    pub publisher_secret: Option<SharedSecret>,
    /// Secret of readers, which permits reading everything.
    pub reader_secret: Option<SharedSecret>,
    /// Key that verifies readers' tokens, each of which lists the documents it may read.
    pub token_key: Option<TokenKey>,
}

/// Permission to read private documents; the default permits none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadGrant(Option<Arc<GrantDetails>>);

#[derive(Debug)]
struct GrantDetails {
    scope: ReadScope,
    /// Expiry of the token.
    ends: Option<Instant>,
}

#[derive(Debug)]
enum ReadScope {
    All,
    Patterns(Vec<Pattern>),
}

/// The claims of a token that are used.
#[derive(Deserialize)]
struct ReaderClaims {
    exp: Option<f64>,
    #[serde(default)]
    microcache: MicrocacheClaim,
}

#[derive(Default, Deserialize)]
struct MicrocacheClaim {
    #[serde(default)]
    read: Vec<String>,
}

/// Error reading a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadGrantError {
    #[error(transparent)]
    Token(#[from] JwtError),
    #[error("the permission contains an invalid pattern {0}: {1}")]
    Name(String, NameError),
    #[error("the permission contains more than {MAX_PATTERNS} patterns")]
    TooMany,
    #[error("names in {READ_FIELD} are separated by spaces, without commas")]
    Commas,
    #[error("{READ_TTL_FIELD} is not a number of seconds from 1 to {MAX_READ_TTL}")]
    Ttl,
    #[error("the secret is unknown, and tokens are not accepted (push_reader_key_file)")]
    Unknown,
}

/// The credentials of a request.
#[derive(Debug)]
pub(crate) enum ReaderCredentials {
    /// None.
    Absent,
    /// Invalid ones.
    Invalid(ReadGrantError),
    /// Valid ones, with their permission.
    Valid(ReadGrant),
}

impl ReadGrant {
    fn new(scope: ReadScope, ends: Option<Instant>) -> Self {
        Self(Some(Arc::new(GrantDetails { scope, ends })))
    }

    #[cfg(test)]
    pub(crate) fn for_patterns(patterns: Vec<Pattern>) -> Self {
        Self::new(ReadScope::Patterns(patterns), None)
    }

    /// Returns when the permission ends.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.0.as_ref()?.ends
    }

    /// Returns whether a private document may be read now.
    pub(crate) fn may_read(&self, name: &str) -> bool {
        let Some(details) = &self.0 else {
            return false;
        };
        let is_covered = match &details.scope {
            ReadScope::All => true,
            ReadScope::Patterns(patterns) => patterns.iter().any(|it| it.matches(name)),
        };
        is_covered && details.ends.is_none_or(|end| end > Instant::now())
    }

    /// Returns the permission as credentials, for a later check.
    pub(crate) fn credentials(&self) -> ReaderCredentials {
        match self.0 {
            None => ReaderCredentials::Absent,
            Some(_) => ReaderCredentials::Valid(self.clone()),
        }
    }

    /// Verifies a token.
    fn verify(token: &[u8], key: &TokenKey) -> Result<Self, ReadGrantError> {
        let claims: ReaderClaims = key.claims(token, None)?;
        let read: Vec<&str> = claims.microcache.read.iter().map(String::as_str).collect();
        let scope = ReadScope::parse(&read)?;
        Ok(Self::new(scope, claims.exp.map(expiry).transpose()?))
    }

    /// Returns the permission that an authentication server has set on a request. A client cannot: its own fields of
    /// these names never arrive here.
    pub(crate) fn from_fields(fields: Fields<'_>) -> Option<Result<Self, ReadGrantError>> {
        let read = fields.get(READ_FIELD)?;
        let ttl = fields.get(READ_TTL_FIELD);
        Some(Self::of_server(&String::from_utf8_lossy(read), ttl))
    }

    fn of_server(read: &str, ttl: Option<&[u8]>) -> Result<Self, ReadGrantError> {
        let names: Vec<_> = read.split_ascii_whitespace().collect();
        // A comma may be part of a name, but was hardly meant to.
        if names.iter().any(|name| name.ends_with(',')) {
            return Err(ReadGrantError::Commas);
        }
        let scope = ReadScope::parse(&names)?;
        let seconds = |text| std::str::from_utf8(text).ok()?.parse().ok();
        let ttl = match ttl {
            None => READ_TTL,
            Some(text) => seconds(text)
                .filter(|ttl| (1..=MAX_READ_TTL).contains(ttl))
                .map(Duration::from_secs)
                .ok_or(ReadGrantError::Ttl)?,
        };
        Ok(Self::new(scope, Some(Instant::now() + ttl)))
    }
}

impl ReadScope {
    fn parse(read: &[&str]) -> Result<Self, ReadGrantError> {
        if read.len() > MAX_PATTERNS {
            return Err(ReadGrantError::TooMany);
        }
        if read.contains(&"*") {
            return Ok(Self::All);
        }
        let patterns: Result<_, _> = read
            .iter()
            .map(|text| {
                let short = || text.chars().take(100).collect();
                Pattern::parse(text).map_err(|why| ReadGrantError::Name(short(), why))
            })
            .collect();
        Ok(Self::Patterns(patterns?))
    }
}

impl PushKeys {
    /// Returns the permission of a request's token.
    pub(crate) fn verify(&self, presented: &RequestToken) -> Result<ReadGrant, ReadGrantError> {
        let secrets = [&self.publisher_secret, &self.reader_secret];
        let mut secrets = secrets.into_iter().flatten();
        if secrets.any(|secret| secret.matches(&presented.token)) {
            return Ok(ReadGrant::new(ReadScope::All, None));
        }
        let key = self.token_key.as_ref().ok_or(ReadGrantError::Unknown)?;
        ReadGrant::verify(&presented.token, key)
    }
}

impl ReaderCredentials {
    /// Returns the permission; invalid credentials permit nothing.
    pub(crate) fn grant(self) -> ReadGrant {
        match self {
            Self::Valid(reader) => reader,
            Self::Absent | Self::Invalid(_) => ReadGrant::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &[u8] = b"a secret of thirty-two characters";

    fn token(claims: &Value) -> Vec<u8> {
        let key = EncodingKey::from_secret(SECRET);
        let token = encode(&Header::default(), claims, &key);
        token.expect("a token").into_bytes()
    }

    fn reader(claims: &Value) -> Result<ReadGrant, ReadGrantError> {
        ReadGrant::verify(&token(claims), &TokenKey::parse(SECRET).expect("a key"))
    }

    #[test]
    fn a_token_names_the_readable_documents() {
        for (read, name, expected) in [
            (json!(["/live/p/a"]), "/live/p/a", true),
            (json!(["/live/p/a"]), "/live/p/ab", false),
            (json!(["/live/p/*"]), "/live/p/a/b", true),
            (json!(["/live/p/{id}"]), "/live/p/a", true),
            (json!(["/live/p/{id}"]), "/live/p/a/b", false),
            (json!(["/live/q/*", "/live/p/*"]), "/live/p/a", true),
            (json!(["*"]), "/live/p/a", true),
            (json!([]), "/live/p/a", false),
        ] {
            let reader = reader(&json!({"microcache": {"read": read}})).expect("a reader");
            assert_eq!(reader.may_read(name), expected, "{read} and {name}");
        }
        for nothing in [
            json!({}),
            json!({"microcache": {}}),
            json!({"mercure": {"subscribe": ["*"]}}),
        ] {
            let reader = reader(&nothing).expect("a reader");
            assert!(!reader.may_read("/live/p/a"), "{nothing}");
        }
        for wrong in [
            json!({"microcache": {"read": "/live/p/a"}}),
            json!({"microcache": {"read": ["/live/../a"]}}),
            json!({"microcache": {"read": ["/live/{"]}}),
            json!({"microcache": {"read": vec!["/a"; MAX_PATTERNS + 1]}}),
            json!({"microcache": {"read": ["*"]}, "exp": 1}),
            json!({"microcache": {"read": ["*"]}, "nbf": 4_102_444_800_u64}),
        ] {
            assert!(reader(&wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_names_the_readable_documents_for_a_time() {
        let read = |lines: &str| ReadGrant::from_fields(Fields::new(lines.as_bytes()));
        assert!(read("Accept: a\r\n").is_none());
        let some = read("Microcache-Read: /live/p/a  /live/q/*\r\nMicrocache-Read-TTL: 60\r\n");
        let some = some.expect("a field").expect("a permission");
        for (name, expected) in [
            ("/live/p/a", true),
            ("/live/q/b", true),
            ("/live/p/b", false),
        ] {
            assert_eq!(some.may_read(name), expected, "{name}");
        }
        let none = read("Microcache-Read: \r\n").expect("a field");
        assert!(!none.expect("no document").may_read("/live/p/a"));
        let all = read("Microcache-Read: *\r\n")
            .expect("a field")
            .expect("all");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!some.may_read("/live/p/a") && all.may_read("/live/p/a"));
        for wrong in ["/live/p/a, /live/p/b", "live/p/a", "/live/../a"] {
            let refused = read(&format!("Microcache-Read: {wrong}\r\n")).expect("a field");
            assert!(refused.is_err(), "{wrong}");
        }
        for ttl in ["0", "-1", "1h", "86401", ""] {
            let lines = format!("Microcache-Read: *\r\nMicrocache-Read-TTL: {ttl}\r\n");
            assert!(read(&lines).expect("a field").is_err(), "{ttl}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_has_its_time() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let exp = now.expect("after 1970").as_secs() + 60;
        let reader = reader(&json!({"microcache": {"read": ["*"]}, "exp": exp})).expect("a reader");
        assert!(reader.may_read("/live/p/a"));
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert!(!reader.may_read("/live/p/a"));
    }
}
