//! The operator's settings for a route, where HTTP leaves a choice.

use crate::coding::Coding;
use crate::edge::EdgeMode;
use crate::field_edits::FieldEdit;
use crate::patterns::{FieldPatterns, Patterns};
use crate::time::Millis;

/// Statuses that the route's `ttl` or a heuristic may make fresh without explicit freshness.
pub(crate) const IMPLICIT_STATUSES: [u16; 8] = [200, 203, 204, 300, 301, 308, 404, 410];

/// Patterns of cookie names.
pub type CookiePatterns = Patterns;

/// Shared or private cache (RFC 9111 §1): they differ in the responses they store and the users they serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// Shared by all users, as in a proxy.
    #[default]
    Shared,
    /// For one user, inside a client. `private` does not prevent storing, credentials do not restrict reuse, `s-maxage`
    /// and `proxy-revalidate` do not apply, `max-stale` is honoured, and responses with a validator are stored even
    /// without a lifetime. The key contains the identity ([`KeyRules::partition`]). [`Rules::private`] has the other
    /// settings that differ.
    Private,
}

/// The settings of one route. The defaults are those of `microcache http://localhost:3000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Shared or private.
    pub kind: CacheKind,
    /// Freshness lifetime of responses without an explicit one, in milliseconds from the receipt.
    pub ttl: Millis,
    /// Like `ttl`, per status. A status listed here is storable without explicit freshness.
    pub status_ttl: Vec<(u16, Millis)>,
    /// A lifetime in milliseconds that overrides the origin's: `max-age`, `s-maxage`, `Expires`, a plain `no-cache`. It
    /// does not decide about storing: `private`, `no-store`, `Set-Cookie`, credentials, `Vary: *` and the list of
    /// storable statuses still apply, and `must-revalidate` still forbids stale responses.
    pub forced_ttl: Option<Millis>,
    /// A lifetime in milliseconds for responses to requests without credentials that are not stored otherwise, because
    /// they are marked as one client's or as stale: see [`anonymous`](crate::anonymous).
    pub anonymous_ttl: Option<Millis>,
    /// The default stale-while-revalidate window, in milliseconds.
    pub stale_while_revalidate: Millis,
    /// The default stale-if-error window, in milliseconds.
    pub stale_if_error: Millis,
    /// Heuristic freshness instead of `ttl`, in percent of the time since the last modification (RFC 9111 §4.2.2).
    pub heuristic: Option<u8>,
    /// Targeted fields (RFC 9213) that apply to this cache, in order of precedence.
    pub targeted: Vec<String>,
    /// Response fields with tags, for purges.
    pub tag_fields: Vec<TagField>,
    /// The treatment of responses with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// Cookies that do not make a request personal, in addition to
    /// [`IMPERSONAL_COOKIES`](crate::impersonal::IMPERSONAL_COOKIES). Requests that pass carry them.
    pub cookies_ignored: CookiePatterns,
    /// Settings for the request that the origin sees.
    pub request: RequestRules,
    /// Field names ignored in `Vary`: responses that differ by them are considered the same.
    pub vary_ignored: Vec<String>,
    /// The languages of the site. If there are any, `Accept-Language` is normalized to the best match, for selection
    /// and for the origin.
    pub languages: Vec<String>,
    /// The treatment of a client's reload (`no-cache`, `max-age=0`).
    pub reload: Reload,
    /// The prefetches that the origin is asked for.
    pub prefetch: Prefetch,
    /// The client is the program itself: `max-stale` is honoured, and a forced reload gets no stale response when the
    /// origin fails.
    pub obeys_client: bool,
    /// The components of the key besides scheme, host, path and query.
    pub key: KeyRules,
    /// Compression. If it is on, the origin is asked for the identity coding.
    pub compress: Compress,
    /// The treatment of the tags of edge side includes.
    pub edge: EdgeMode,
    /// The changes that are made to pages before they are stored, written out; empty if there are none.
    pub page_edits: String,
    /// Requests with credentials and a [`USER_CONTEXT`](crate::request::USER_CONTEXT) are coalesced with others that have
    /// the same one, which is part of the key. The proxy sets that field, and removes a client's own.
    pub user_context: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            kind: CacheKind::Shared,
            ttl: 1_000,
            status_ttl: Vec::new(),
            forced_ttl: None,
            anonymous_ttl: None,
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
            prefetch: Prefetch::default(),
            obeys_client: false,
            key: KeyRules::default(),
            compress: Compress::default(),
            edge: EdgeMode::default(),
            page_edits: String::new(),
            user_context: false,
        }
    }
}

impl Rules {
    /// The rules of a private cache: no default lifetimes and stale windows but heuristic freshness (RFC 9111 §4.2.2);
    /// reloads are honoured, `Set-Cookie` is stored, and no targeted field applies.
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
            request: RequestRules {
                // The program itself.
                trusted_fields: ["*"].into_iter().collect(),
                ..RequestRules::default()
            },
            ..Self::default()
        }
    }

    /// Returns true if the origin is asked for the identity coding, whatever a client accepts: responses are encoded,
    /// composed, changed or read here.
    pub fn ask_for_identity(&self) -> bool {
        self.compress.is_on()
            || self.edge != EdgeMode::Off
            || !self.page_edits.is_empty()
            || self.anonymous_ttl.is_some()
    }

    pub(crate) fn are_private(&self) -> bool {
        self.kind == CacheKind::Private
    }
}

/// A response field with tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagField {
    /// The field name.
    pub name: String,
    /// The separator of its tags.
    pub separator: Separator,
}

impl TagField {
    /// The tag fields that applications write for other caches, with their separators.
    pub const WELL_KNOWN: [(&str, Separator); 3] = [
        ("Cache-Tag", Separator::Comma),
        ("Surrogate-Key", Separator::Space),
        ("xkey", Separator::CommaOrSpace),
    ];
}

/// The separator of tags in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// Commas, with optional white space around the tags.
    Comma,
    /// White space.
    Space,
    /// Commas or white space.
    CommaOrSpace,
}

/// The treatment of a response with `Set-Cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// Do not store it.
    #[default]
    Refuse,
    /// Store it without the cookie.
    Strip,
    /// Store it and replay the cookie to every client, at the operator's own risk.
    Store,
}

/// The treatment of a client's reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// Handle it like any other request: clients do not control the load of the origin.
    #[default]
    Ignore,
    /// Revalidate first, as in RFC 9111 §5.2.1.4.
    Honour,
}

/// The prefetches that the origin is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// All, as for any request.
    #[default]
    All,
    /// None: what is stored answers them, and is not refreshed for them.
    Hits,
}

/// Settings for the request that the origin sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Cookies removed from requests. They have no effect on caching.
    pub removed_cookies: CookiePatterns,
    /// Fields removed likewise.
    pub removed_fields: FieldPatterns,
    /// Fields that are forwarded for every client although only trusted peers may send them. They are part of the key.
    pub kept_fields: FieldPatterns,
    /// Fields that trusted peers set themselves, beside the usual ones: [`is_believed`](crate::is_believed).
    pub trusted_fields: FieldPatterns,
    /// Further fields that a shared fetch sends, without being part of the key.
    pub forwarded_fields: FieldPatterns,
    /// Fields that authentication sets for one client, as [`RequestRules::grant`] adds them.
    pub granted_fields: FieldPatterns,
    /// Fields that the operator writes in place of the client's.
    pub set_fields: Vec<FieldEdit>,
}

impl RequestRules {
    /// Adds a field that authentication sets for one client. The client's own is removed, and a shared fetch sends none,
    /// whatever else names it.
    pub fn grant(&mut self, name: &str) {
        self.granted_fields.push(with_hyphens(name.as_bytes()));
    }

    /// Returns true for a field that authentication sets, and for one that programs take for it: to PHP, `Remote_User`
    /// is `Remote-User`.
    pub fn is_granted(&self, name: &[u8]) -> bool {
        !self.granted_fields.is_empty() && self.granted_fields.matches(&with_hyphens(name))
    }

    /// Returns true if the operator writes a field of this name.
    pub fn sets(&self, name: &[u8]) -> bool {
        let mut edits = self.set_fields.iter();
        edits.any(|edit| name.eq_ignore_ascii_case(edit.name.as_bytes()))
    }
}

/// Returns a name with hyphens in place of all but letters and digits.
fn with_hyphens(name: &[u8]) -> Vec<u8> {
    let hyphen = |&byte: &u8| {
        if byte.is_ascii_alphanumeric() {
            byte
        } else {
            b'-'
        }
    };
    name.iter().map(hyphen).collect()
}

/// The components of the key besides scheme, host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// The query parameters that are part of the key.
    pub query: Query,
    /// The order of parameters with different names does not matter: they are sorted, in the key and for the origin.
    pub sort: bool,
    /// Forwards the whole query to the origin, which must not depend on the parameters outside the key.
    pub whole_query: bool,
    /// Request fields that are part of the key, by name; a `*` at the end matches any suffix.
    pub headers: Vec<String>,
    /// Cookies that are part of the key, likewise. Such a cookie does not make a request personal.
    pub cookies: Vec<String>,
    /// The partition of a private cache, in addition to `Authorization`.
    pub partition: Vec<u8>,
    /// The name of the route, if requests for one url may take several: each has entries of its own.
    pub route: Option<String>,
    /// The rules that keys are built by: see [`Rules::sealed`].
    pub seal: Seal,
}

impl KeyRules {
    /// Returns true if a request field called `name` is part of the key.
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

/// The query parameters that are part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// The raw query.
    #[default]
    All,
    /// All but these.
    Except(Patterns),
    /// Only these.
    Only(Patterns),
}

/// The identity of the sharing rules in a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seal {
    /// Not in the key: its builder only ever has one set of rules.
    #[default]
    None,
    /// The default rules. The key is the url alone, unless a trusted proxy sends forwarding fields.
    Usual,
    /// Other rules, with a hash of them.
    Own(u64),
}

/// The compression settings of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// Codings to produce, best first. Compression is off if there is none.
    pub codings: Vec<Coding>,
    /// Media types to compress, in lower case; `*` matches any run of characters.
    pub types: Vec<String>,
    /// Minimum size of a body, in bytes.
    pub smallest: u64,
    /// Maximum size of a body, in bytes.
    pub largest: u64,
    /// Compresses responses that may be user-specific too: see [`Compress::suits`].
    pub personal: bool,
    /// Offers a page as the dictionary of its next version (RFC 9842).
    pub dictionaries: bool,
    /// An identifier of these settings, assigned by [`Rules::sealed`].
    pub number: u32,
}

impl Default for Compress {
    fn default() -> Self {
        Self {
            codings: Vec::new(),
            types: Self::USUAL_TYPES.map(str::to_owned).to_vec(),
            smallest: 1024,
            largest: 8 * 1024 * 1024,
            personal: false,
            dictionaries: false,
            number: 0,
        }
    }
}
