//! What the operator says for a route, where HTTP leaves room.

use crate::compression::Compress;
use crate::patterns::{FieldPatterns, Patterns};
use crate::sharing::Seal;
use crate::tags::Separator;
use crate::time::Millis;

/// Which cookies do not make a request personal.
pub type CookiePatterns = Patterns;

/// Whose cache it is (RFC 9111 §1): what may be stored, and for whom it may be used, differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// Everybody's, as a proxy is.
    #[default]
    Shared,
    /// One user's, inside his client. `private` is no reason not to store a response, credentials do
    /// not limit what it is used for, `s-maxage` and `proxy-revalidate` are for others, the user may
    /// accept stale responses (`max-stale`), and what can be validated is stored even if nobody says
    /// how long it is fresh. The key tells identities apart ([`KeyRules::partition`]). What else
    /// differs are other rules: [`Rules::private`] has them all.
    Private,
}

/// The operator's word on one route. The defaults are those of `microcache http://localhost:3000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whose cache it is.
    pub kind: CacheKind,
    /// How long a response without explicit freshness stays fresh, counted from its receipt.
    pub ttl: Millis,
    /// The same per status. A status named here is storable without explicit freshness.
    pub status_ttl: Vec<(u16, Millis)>,
    /// Replaces whatever the origin says about *how long*: `max-age`, `s-maxage`, `Expires`, a
    /// plain `no-cache`. It never decides *whether*: `private`, `no-store`, `Set-Cookie`,
    /// credentials, `Vary: *` and the list of storable statuses keep their say, and
    /// `must-revalidate` still forbids stale answers.
    pub forced_ttl: Option<Millis>,
    /// The stale-while-revalidate window where the response names none.
    pub stale_while_revalidate: Millis,
    /// The stale-if-error window where the response names none.
    pub stale_if_error: Millis,
    /// Percent of the time since the last modification, as RFC 9111 §4.2.2 suggests, instead of
    /// `ttl`.
    pub heuristic: Option<u8>,
    /// Targeted fields (RFC 9213) that speak to this cache, most important first.
    pub targeted: Vec<String>,
    /// Response fields with tags, for purges.
    pub tag_fields: Vec<TagField>,
    /// What becomes of a response with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// Cookies that do not make a request personal, beside those that never do
    /// ([`IMPERSONAL_COOKIES`](crate::impersonal::IMPERSONAL_COOKIES)). Requests that pass carry them.
    pub cookies_ignored: CookiePatterns,
    /// What the origin sees of a request.
    pub request: RequestRules,
    /// Fields whose mention in `Vary` is not believed: responses that differ by them are taken to be
    /// the same.
    pub vary_ignored: Vec<String>,
    /// The languages of the site. Where there are any, `Accept-Language` counts, and reaches the
    /// origin, only as the one of them that fits best.
    pub languages: Vec<String>,
    /// Whether a client's reload (`no-cache`, `max-age=0`) reaches the origin.
    pub reload: Reload,
    /// The client is the program itself: what it accepts although it is stale it is given (`max-stale`), and if it
    /// forces a reload nothing else stands in when the origin fails.
    pub obeys_client: bool,
    /// What makes up the key beside scheme, host, path and query.
    pub key: KeyRules,
    /// What is sent compressed. Where anything is, the origin is asked for what is not encoded.
    pub compress: Compress,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            kind: CacheKind::Shared,
            ttl: 1_000,
            status_ttl: Vec::new(),
            forced_ttl: None,
            stale_while_revalidate: 10_000,
            stale_if_error: 86_400_000,
            heuristic: None,
            targeted: vec!["CDN-Cache-Control".to_owned()],
            tag_fields: TagField::WELL_KNOWN
                .iter()
                .map(|&(name, separator)| TagField {
                    name: name.to_owned(),
                    separator,
                })
                .collect(),
            set_cookie: SetCookie::default(),
            cookies_ignored: CookiePatterns::new(),
            request: RequestRules::default(),
            vary_ignored: Vec::new(),
            languages: Vec::new(),
            reload: Reload::default(),
            obeys_client: false,
            key: KeyRules::default(),
            compress: Compress::default(),
        }
    }
}

impl Rules {
    /// The rules of one user's cache: nothing is fresh or used stale that does not say so, but for the
    /// heuristic of RFC 9111 §4.2.2; his reload is honoured, his cookies are kept, and no field that
    /// speaks to shared caches counts.
    pub fn private() -> Self {
        Self {
            kind: CacheKind::Private,
            ttl: 0,
            stale_while_revalidate: 0,
            stale_if_error: 0,
            heuristic: Some(10),
            targeted: Vec::new(),
            set_cookie: SetCookie::Store,
            reload: Reload::Honour,
            obeys_client: true,
            ..Self::default()
        }
    }

    pub(crate) fn are_private(&self) -> bool {
        self.kind == CacheKind::Private
    }
}

/// A response field in which applications name tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagField {
    /// What it is called.
    pub name: String,
    /// What separates the tags in it.
    pub separator: Separator,
}

impl TagField {
    /// The fields that applications write for other caches, with their separators there.
    pub const WELL_KNOWN: [(&str, Separator); 3] = [
        ("Cache-Tag", Separator::Comma),
        ("Surrogate-Key", Separator::Space),
        ("xkey", Separator::CommaOrSpace),
    ];
}

/// What becomes of a response with `Set-Cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// It is not stored.
    #[default]
    Refuse,
    /// It is stored without the cookie.
    Strip,
    /// It is stored and the cookie replayed to everyone, on the operator's own word.
    Store,
}

/// Whether a client's reload reaches the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// A reload is answered like any other request: the origin's load is not in the clients' hands.
    #[default]
    Ignore,
    /// A reload asks the origin first, as RFC 9111 §5.2.1.4 describes.
    Honour,
}

/// What the origin sees of a request, beside what it sees of every one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Cookies that the origin does not see, and that count nowhere.
    pub removed_cookies: CookiePatterns,
    /// Fields likewise.
    pub removed_fields: FieldPatterns,
    /// Fields that are passed on for everybody although only a trusted peer's would be. They are
    /// part of the key.
    pub kept_fields: FieldPatterns,
    /// Fields that a fetch for everyone sends although they are neither known nor part of the key.
    pub forwarded_fields: FieldPatterns,
}

/// What makes up the key beside scheme, host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// Which query parameters count.
    pub query: Query,
    /// The origin gets the whole query, not only what counts. It must not answer by the rest.
    pub whole_query: bool,
    /// Request fields that are part of the key, by name; a `*` at the end stands for any rest.
    pub headers: Vec<String>,
    /// Cookies that are part of the key, likewise. Such a cookie does not make a request personal.
    pub cookies: Vec<String>,
    /// What tells the identities of one private cache apart, beside `Authorization`.
    pub partition: Vec<u8>,
    /// What keys say of the rules that they were built by: see [`Rules::sealed`].
    pub seal: Seal,
}

impl KeyRules {
    /// Whether a request field called `name` is part of the key.
    pub fn has_header(&self, name: &[u8]) -> bool {
        let takes = |wanted: &String| match wanted.as_bytes().strip_suffix(b"*") {
            Some(beginning) => name
                .get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning)),
            None => name.eq_ignore_ascii_case(wanted.as_bytes()),
        };
        self.headers.iter().any(takes)
    }
}

/// Which query parameters are part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// The raw query as it stands.
    #[default]
    All,
    /// All but these.
    Except(Patterns),
    /// These and no others.
    Only(Patterns),
}
