//! Read access to private documents: by the publishers' or the readers' secret, or by a token (JWT) that
//! lists patterns.
//!
//! Access is checked against the name of a document, which has one normal form. Requests for its path,
//! patterns that reach it and commands on a WebSocket all end in the same check.

use std::sync::Arc;

use serde::Deserialize;
use tokio::time::Instant;

use crate::access::key::{Key, NoToken, ends};
use crate::access::presented::Presented;
use crate::access::token::Token;
use crate::name::{NameError, Pattern};

/// Limit of patterns in a token.
const MAX_NAMED: usize = 100;

/// The secrets and keys of publishers and readers.
#[derive(Clone, Debug, Default)]
pub struct PushKeys {
    /// Secret of publishers, who may also read everything; `None` disables publishing.
    pub publishers: Option<Token>,
    /// Secret of readers, who may read everything.
    pub readers: Option<Token>,
    /// Key that signs readers' tokens, each of which lists what it may read.
    pub signed: Option<Key>,
}

/// Permission to read private documents; the default permits none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader(Option<Arc<Right>>);

#[derive(Debug)]
struct Right {
    what: Readable,
    /// Expiry of the token.
    ends: Option<Instant>,
}

#[derive(Debug)]
enum Readable {
    All,
    These(Vec<Pattern>),
}

/// The claims of a token that are used.
#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
    #[serde(default)]
    microcache: Said,
}

#[derive(Default, Deserialize)]
struct Said {
    #[serde(default)]
    read: Vec<String>,
}

/// Error reading a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReader {
    #[error(transparent)]
    Token(#[from] NoToken),
    #[error("the token names {0}: {1}")]
    Name(String, NameError),
    #[error("the token names more than {MAX_NAMED} things")]
    TooMany,
    #[error("no such secret is known, and no tokens are (push_reader_key_file)")]
    Unknown,
}

/// The credentials of a request.
#[derive(Debug)]
pub(crate) enum Shown {
    /// None.
    Nothing,
    /// Invalid ones.
    Wrong(NoReader),
    /// Valid ones, with their permission.
    Reader(Reader),
}

impl Reader {
    fn new(what: Readable, ends: Option<Instant>) -> Self {
        Self(Some(Arc::new(Right { what, ends })))
    }

    #[cfg(test)]
    pub(crate) fn of_these(patterns: Vec<Pattern>) -> Self {
        Self::new(Readable::These(patterns), None)
    }

    /// Returns when the permission ends.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.0.as_ref()?.ends
    }

    /// Returns whether a private document may be read now.
    pub(crate) fn may_read(&self, name: &str) -> bool {
        let Some(right) = &self.0 else {
            return false;
        };
        let is_named = match &right.what {
            Readable::All => true,
            Readable::These(patterns) => patterns.iter().any(|it| it.matches(name)),
        };
        is_named && right.ends.is_none_or(|end| end > Instant::now())
    }

    /// Returns the permission as credentials, for a later check.
    pub(crate) fn shown(&self) -> Shown {
        match self.0 {
            None => Shown::Nothing,
            Some(_) => Shown::Reader(self.clone()),
        }
    }

    /// Verifies a token.
    fn of(token: &[u8], key: &Key) -> Result<Self, NoReader> {
        let claims: Claims = key.claims(token, None)?;
        let read = claims.microcache.read;
        if read.len() > MAX_NAMED {
            return Err(NoReader::TooMany);
        }
        let ends = claims.exp.map(ends).transpose()?;
        if read.iter().any(|text| text == "*") {
            return Ok(Self::new(Readable::All, ends));
        }
        let patterns: Result<_, _> = read
            .iter()
            .map(|text| {
                let short = || text.chars().take(100).collect();
                Pattern::parse(text).map_err(|why| NoReader::Name(short(), why))
            })
            .collect();
        Ok(Self::new(Readable::These(patterns?), ends))
    }
}

impl PushKeys {
    /// Returns the permission of a request's token.
    pub(crate) fn reader(&self, presented: &Presented) -> Result<Reader, NoReader> {
        let secrets = [&self.publishers, &self.readers];
        let mut secrets = secrets.into_iter().flatten();
        if secrets.any(|secret| secret.is(&presented.token)) {
            return Ok(Reader::new(Readable::All, None));
        }
        let key = self.signed.as_ref().ok_or(NoReader::Unknown)?;
        Reader::of(&presented.token, key)
    }
}

impl Shown {
    /// Returns the permission; invalid credentials permit nothing.
    pub(crate) fn reader(self) -> Reader {
        match self {
            Self::Reader(reader) => reader,
            Self::Nothing | Self::Wrong(_) => Reader::default(),
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

    fn reader(claims: &Value) -> Result<Reader, NoReader> {
        Reader::of(&token(claims), &Key::of(SECRET).expect("a key"))
    }

    #[test]
    fn a_token_names_what_may_be_read() {
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
            json!({"microcache": {"read": vec!["/a"; MAX_NAMED + 1]}}),
            json!({"microcache": {"read": ["*"]}, "exp": 1}),
            json!({"microcache": {"read": ["*"]}, "nbf": 4_102_444_800_u64}),
        ] {
            assert!(reader(&wrong).is_err(), "{wrong}");
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
