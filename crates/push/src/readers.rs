//! Who may read documents that are private: who has the secret of those who publish or of those who read, or a token
//! (JWT) that names what he may read.
//!
//! It is held against the name of a document, and a name is written in one way: whatever way leads to a document, by its
//! path, by a pattern that reaches that far or by an order on a socket, ends here.

use std::sync::Arc;

use microcache_engine::OriginRequest;
use microcache_policy::Fields;
use serde::Deserialize;
use tokio::time::Instant;

use crate::access::Token;
use crate::key::{Key, NoToken, ends};
use crate::name::{NameError, Pattern, Prefix};
use crate::origin::Documents;
use crate::presented::Presented;
use crate::sites;
use crate::urls::NoUrl;

/// What a cookie with a token is called.
const COOKIES: &[&[u8]] = &[
    b"microcacheAuthorization",
    b"__Secure-microcacheAuthorization",
];
/// The most that a token may name.
const MAX_NAMED: usize = 100;

/// What is shown by those who publish, and by those who read what is private.
#[derive(Clone, Debug, Default)]
pub struct PushKeys {
    /// Who has it publishes, and reads everything. Without it nobody publishes.
    pub publishers: Option<Token>,
    /// Who has it reads everything.
    pub readers: Option<Token>,
    /// Who has a token that is signed with it reads what that names.
    pub signed: Option<Key>,
}

/// What somebody may read of what is private; of most, nothing is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader(Option<Arc<Right>>);

#[derive(Debug)]
struct Right {
    what: Readable,
    /// Until when.
    ends: Option<Instant>,
}

#[derive(Debug)]
enum Readable {
    All,
    These(Vec<Pattern>),
}

/// What is read of a token.
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

/// Why a token is none that says what may be read.
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

/// What somebody has shown.
#[derive(Debug)]
pub(crate) enum Shown {
    /// Nothing that counts.
    Nothing,
    /// Something that does not.
    Wrong(NoReader),
    /// This is what he may read.
    Reader(Reader),
}

impl Reader {
    fn new(what: Readable, ends: Option<Instant>) -> Self {
        Self(Some(Arc::new(Right { what, ends })))
    }

    /// When he may read nothing any more.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.0.as_ref()?.ends
    }

    /// Whether he may read a private document now.
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

    /// What he has shown.
    pub(crate) fn shown(&self) -> Shown {
        match self.0 {
            None => Shown::Nothing,
            Some(_) => Shown::Reader(self.clone()),
        }
    }

    /// By a token.
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
    fn reader(&self, presented: &Presented) -> Result<Reader, NoReader> {
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
    /// What may be read by somebody who is let.
    pub(crate) fn reader(self) -> Reader {
        match self {
            Self::Reader(reader) => reader,
            Self::Nothing | Self::Wrong(_) => Reader::default(),
        }
    }
}

impl Documents {
    /// Whether a document of this name is for those only who may read it.
    pub(crate) fn is_private(&self, name: &str) -> bool {
        let mut private = self.settings.private.iter();
        private.any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// What a request shows. A token may stand in the query where it is not written to logs.
    pub(crate) fn shown(&self, request: &OriginRequest, target: &[u8]) -> Shown {
        let fields = request.fields.fields();
        let counts = |presented: &Presented| {
            let sites = &self.settings.allow_origins;
            !presented.is_ambient || sites::counts_cookies(sites, fields, &request.authority)
        };
        self.shown_by(fields, target, counts)
    }

    fn shown_by(
        &self,
        fields: Fields<'_>,
        target: &[u8],
        counts: impl Fn(&Presented) -> bool,
    ) -> Shown {
        // Whoever reads what is for all brings along what is none of our business.
        if self.settings.private.is_empty() {
            return Shown::Nothing;
        }
        match Presented::of(fields, target, COOKIES).filter(counts) {
            None => Shown::Nothing,
            Some(presented) => match self.keys.read().reader(&presented) {
                Ok(reader) => Shown::Reader(reader),
                Err(why) => Shown::Wrong(why),
            },
        }
    }

    /// Whether a document may be answered at once, by what little is known of a request then: which host it names is
    /// not, so that cookies of pages that say where they are from are looked at later.
    pub(crate) fn is_open_to(&self, name: &str, fields: Fields<'_>) -> bool {
        if !self.is_private(name) {
            return true;
        }
        let is_from_here = !fields.contains("origin") && sites::counts_cookies(&[], fields, b"");
        let shown = self.shown_by(fields, b"", |it| !it.is_ambient || is_from_here);
        shown.reader().may_read(name)
    }

    /// Whether somebody may ask for this. Of what several documents are like he is told what he may read.
    pub(crate) fn may_ask(&self, shown: &Shown, pattern: &Pattern) -> Result<(), NoUrl> {
        let begins_with = pattern.begins_with();
        let has = |private: &Prefix| begins_with.starts_with(private.as_str());
        let reaches = |private: &Prefix| private.as_str().starts_with(begins_with);
        let private = &self.settings.private;
        let is_private = private.iter().any(has);
        let may_be_private = is_private || pattern.is_like() && private.iter().any(reaches);
        if !may_be_private {
            return Ok(());
        }
        match (shown, pattern) {
            (Shown::Wrong(why), _) => Err(NoUrl::new(401, why.to_string())),
            (Shown::Nothing, _) if is_private => {
                let why = format!("{} is private: show a token", pattern.as_written());
                Err(NoUrl::new(401, why))
            }
            (Shown::Reader(reader), Pattern::Exact(name)) if !reader.may_read(name) => {
                let why = format!("{name} is private, and the token does not name it");
                Err(NoUrl::new(403, why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::{Value, json};

    use super::*;
    use crate::origin::Push;
    use crate::settings::PushSettings;

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

    #[test]
    fn patterns_that_reach_what_is_private_are_told_from_those_that_are() {
        let settings = PushSettings {
            private: vec![Prefix::parse("/live/p/").expect("a prefix")],
            memory: 1 << 20,
            max_subscribers: 10,
            ..PushSettings::default()
        };
        let push = Push::start(settings, PushKeys::default()).expect("in memory");
        let some = || {
            let read = json!({"microcache": {"read": ["/live/p/a"]}});
            Shown::Reader(reader(&read).expect("a reader"))
        };
        for (url, nothing, wrong, reads) in [
            ("/live/x", 200, 200, 200),
            ("/live/p", 200, 200, 200),
            ("/live/px", 200, 200, 200),
            ("/live/q/*", 200, 200, 200),
            ("/live/p/a", 401, 401, 200),
            ("/live/p/b", 401, 401, 403),
            ("/live/p/*", 401, 401, 200),
            ("/live/p/{id}", 401, 401, 200),
            ("/live/*", 200, 401, 200),
            ("/live/p*", 200, 401, 200),
            ("/*", 200, 401, 200),
            ("/live/{a}/a", 200, 401, 200),
        ] {
            let pattern = Pattern::parse(url).expect("a pattern");
            let may = |shown: &Shown| {
                let may = push.documents().may_ask(shown, &pattern);
                may.err().map_or(200, |why| why.status)
            };
            let known = [
                may(&Shown::Nothing),
                may(&Shown::Wrong(NoReader::Unknown)),
                may(&some()),
            ];
            assert_eq!(known, [nothing, wrong, reads], "{url}");
        }
    }
}
