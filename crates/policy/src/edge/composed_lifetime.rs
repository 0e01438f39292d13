//! The lifetime of a composed page, and its fields.

use std::fmt::Write;

use crate::directives::{self, Directive, ResponseDirectives};
use crate::fields::{Fields, FieldsBuf, is_one_of};
use crate::known_name::names;

/// The lifetime for caches beyond this one of a page that is composed of several responses: of each directive the
/// strictest. The shell's directives alone would let a browser keep a fragment for as long as the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComposedLifetime {
    /// The [`RESTRICTIONS`] that any part says.
    restrictions: u8,
    /// All parts say `public`.
    is_public: bool,
    /// Any part says `s-maxage`.
    has_shared_age: bool,
    /// Seconds left in browsers.
    max_age: u64,
    /// Seconds left in shared caches.
    shared_age: u64,
}

const PRIVATE: u8 = 1;
const NO_CACHE: u8 = 2;
const NO_STORE: u8 = 4;
const NO_TRANSFORM: u8 = 8;
const MUST_REVALIDATE: u8 = 16;
const PROXY_REVALIDATE: u8 = 32;

const RESTRICTIONS: [(u8, &str); 6] = [
    (PRIVATE, "private"),
    (NO_CACHE, "no-cache"),
    (NO_STORE, "no-store"),
    (NO_TRANSFORM, "no-transform"),
    (MUST_REVALIDATE, "must-revalidate"),
    (PROXY_REVALIDATE, "proxy-revalidate"),
];

/// The fields of the shell that are wrong for a composed page: validators, digests, ranges and lifetimes of its own.
const LEFT_OUT: [&str; 15] = [
    "accept-ranges",
    "age",
    "cache-control",
    "content-digest",
    "content-length",
    "content-md5",
    "digest",
    "etag",
    "expires",
    "last-modified",
    "pragma",
    "repr-digest",
    "surrogate-control",
    "use-as-dictionary",
    "x-accel-expires",
];

/// The end of the names of fields by which one cache in particular is controlled.
const TARGETED: &[u8] = b"-cache-control";

impl ComposedLifetime {
    /// The lifetime of a fragment that is not there when the head of its page is sent.
    pub const UNKNOWN: Self = Self {
        restrictions: PRIVATE | NO_CACHE,
        is_public: false,
        has_shared_age: false,
        max_age: 0,
        shared_age: 0,
    };

    /// Reads the lifetime of a part, which is this many seconds old. One without a lifetime in `Cache-Control` has none.
    /// `is_shared`: the part is not for one client.
    pub fn of(part: Fields<'_>, age: u64, is_shared: bool) -> Self {
        let mut said = ResponseDirectives::default();
        let mut restrictions = if is_shared { 0 } else { PRIVATE };
        let lines = part.values(names::CACHE_CONTROL);
        for (name, argument) in lines.flat_map(directives::of_line) {
            said.note(name, argument);
            // Also those of single fields, as `no-cache="set-cookie"`.
            let mut known = RESTRICTIONS.iter();
            let known = known.find(|(_, word)| name.eq_ignore_ascii_case(word.as_bytes()));
            restrictions |= known.map_or(0, |(bit, _)| *bit);
        }
        // Also in misspelt lists.
        for (bit, directive) in [
            (PRIVATE, Directive::Private),
            (NO_CACHE, Directive::NoCache),
            (NO_STORE, Directive::NoStore),
            (MUST_REVALIDATE, Directive::MustRevalidateAtLeast),
            (PROXY_REVALIDATE, Directive::ProxyRevalidate),
        ] {
            restrictions |= if said.says(directive) { bit } else { 0 };
        }
        let max_age = said.max_age.unwrap_or(0);
        let shared_age = said.s_maxage.unwrap_or(max_age);
        Self {
            restrictions,
            is_public: is_shared && said.says(Directive::Public),
            has_shared_age: said.s_maxage.is_some(),
            max_age: (max_age / 1000).saturating_sub(age),
            shared_age: (shared_age / 1000).saturating_sub(age),
        }
    }

    /// Returns the lifetime of a page that contains both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            restrictions: self.restrictions | other.restrictions,
            is_public: self.is_public && other.is_public,
            has_shared_age: self.has_shared_age || other.has_shared_age,
            max_age: self.max_age.min(other.max_age),
            shared_age: self.shared_age.min(other.shared_age),
        }
    }

    /// Returns true if the page is for one client.
    pub const fn is_private(self) -> bool {
        self.has(PRIVATE)
    }

    /// Returns the fields of a page with this lifetime. The shell's are changed; of the fragments' fields, only the names
    /// in `Vary` count.
    pub fn fields<'a>(
        self,
        shell: Fields<'_>,
        fragments: impl Iterator<Item = Fields<'a>>,
    ) -> FieldsBuf {
        let mut fields = FieldsBuf::with_capacity(shell.as_block().len());
        fields.extend_if(shell, |name, _| !is_left_out(name));
        let mut named: Vec<&[u8]> = shell.members("vary").collect();
        let from_shell = named.len();
        for name in fragments.flat_map(|fragment| fragment.members("vary")) {
            if !named.iter().any(|one| one.eq_ignore_ascii_case(name)) {
                named.push(name);
            }
        }
        let added = &named[from_shell..];
        if !added.is_empty() {
            fields.push("Vary", added.join(&b", "[..]));
        }
        fields.push("Cache-Control", self.cache_control());
        fields
    }

    /// Returns the directives of a page with this lifetime.
    pub fn cache_control(self) -> String {
        let mut all = String::new();
        for (bit, word) in RESTRICTIONS {
            if self.has(bit) {
                all += word;
                all += ", ";
            }
        }
        if self.is_public && !self.is_private() {
            all += "public, ";
        }
        if !self.has(NO_CACHE) && !self.has(NO_STORE) {
            let _infallible = write!(all, "max-age={}, ", self.max_age);
            if self.has_shared_age && !self.is_private() {
                let _infallible = write!(all, "s-maxage={}, ", self.shared_age);
            }
        }
        all.truncate(all.len().saturating_sub(2));
        all
    }

    const fn has(self, restriction: u8) -> bool {
        self.restrictions & restriction != 0
    }
}

/// Returns true for the fields in [`LEFT_OUT`], and for those whose names end with [`TARGETED`].
fn is_left_out(name: &[u8]) -> bool {
    let end = name.last_chunk::<{ TARGETED.len() }>();
    is_one_of(name, &LEFT_OUT) || end.is_some_and(|end| end.eq_ignore_ascii_case(TARGETED))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::testing::fields;

    fn of(value: &str, age: u64) -> ComposedLifetime {
        let part = fields(&format!("Cache-Control: {value}"));
        ComposedLifetime::of(part.fields(), age, true)
    }

    fn written(lifetime: ComposedLifetime) -> String {
        lifetime.cache_control()
    }

    #[test]
    fn the_strictest_directive_of_each_kind_counts() {
        for (shell, fragment, expected) in [
            (
                "public, max-age=60",
                "public, max-age=20",
                "public, max-age=20",
            ),
            ("public, max-age=60", "max-age=90", "max-age=60"),
            (
                "public, max-age=60",
                "private, max-age=20",
                "private, max-age=20",
            ),
            (
                "public, max-age=60, s-maxage=600",
                "public, max-age=90",
                "public, max-age=60, s-maxage=90",
            ),
            ("s-maxage=60", "private, max-age=20", "private, max-age=0"),
            ("max-age=60", "no-cache", "no-cache"),
            ("max-age=60", "private, no-store", "private, no-store"),
            (
                "max-age=60",
                "no-transform, max-age=60",
                "no-transform, max-age=60",
            ),
            (
                "max-age=60",
                "must-revalidate",
                "must-revalidate, max-age=0",
            ),
            (
                "max-age=60",
                "private=\"x\", max-age=60",
                "private, max-age=60",
            ),
            ("max-age=60", "private; max-age=60", "private, max-age=0"),
            ("max-age=60", "", "max-age=0"),
            (
                "max-age=60, stale-while-revalidate=9, immutable",
                "max-age=60",
                "max-age=60",
            ),
        ] {
            let composed = of(shell, 0).and(of(fragment, 0));
            assert_eq!(written(composed), expected, "{shell} and {fragment}");
        }
    }

    #[test]
    fn ages_are_subtracted() {
        let composed = of("max-age=60", 50).and(of("max-age=40", 10));
        assert_eq!(written(composed), "max-age=10");
        assert_eq!(written(of("max-age=60", 61)), "max-age=0");
    }

    #[test]
    fn a_part_for_one_client_makes_the_page_private() {
        let part = fields("Cache-Control: public, max-age=60");
        let personal = ComposedLifetime::of(part.fields(), 0, false);
        assert_eq!(written(personal), "private, max-age=60");
        assert!(of("public, max-age=60", 0).and(personal).is_private());
    }

    #[test]
    fn a_page_without_all_its_fragments_is_kept_by_no_cache() {
        let shell = of("public, max-age=60, s-maxage=600", 0);
        assert_eq!(
            written(shell.and(ComposedLifetime::UNKNOWN)),
            "private, no-cache"
        );
        let shell = of("no-store", 0);
        let expected = "private, no-cache, no-store";
        assert_eq!(written(shell.and(ComposedLifetime::UNKNOWN)), expected);
    }

    #[test]
    fn fields_that_are_true_of_the_shell_alone_are_left_out() {
        let shell = "Content-Type: text/html\nETag: \"a\"\nLast-Modified: x\nAccept-Ranges: bytes\nExpires: x\n\
            Repr-Digest: x\nCDN-Cache-Control: max-age=600\nSurrogate-Control: max-age=600, content=\"ESI/1.0\"\n\
            Cache-Tag: a\nVary: Accept-Encoding\nAge: 3\nCache-Control: max-age=60\nUse-As-Dictionary: match=\"/*\"";
        let shell = fields(shell);
        let fragments = [
            fields("Vary: Cookie, accept-encoding\nETag: \"b\"\nSet-Cookie: a=b"),
            fields("A: b"),
        ];
        let composed =
            of("max-age=60", 0).fields(shell.fields(), fragments.iter().map(FieldsBuf::fields));
        let text = composed.into_block();
        let expected = "Content-Type: text/html\r\nCache-Tag: a\r\nVary: Accept-Encoding\r\nVary: Cookie\r\n\
            Cache-Control: max-age=60\r\n";
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }

    fn lifetime() -> impl Strategy<Value = ComposedLifetime> {
        let directive = select(vec![
            "public",
            "private",
            "no-cache",
            "no-store",
            "must-revalidate",
            "max-age=5",
            "max-age=60",
            "s-maxage=30",
        ]);
        (vec(directive, 0..5), 0..10_u64, any::<bool>()).prop_map(|(directives, age, is_shared)| {
            let part = fields(&format!("Cache-Control: {}", directives.join(", ")));
            ComposedLifetime::of(part.fields(), age, is_shared)
        })
    }

    proptest! {
        #[test]
        fn the_order_of_the_parts_does_not_matter(a in lifetime(), b in lifetime(), c in lifetime()) {
            prop_assert_eq!(a.and(b), b.and(a));
            prop_assert_eq!(a.and(b).and(c), a.and(b.and(c)));
            prop_assert_eq!(a.and(a), a);
        }

        #[test]
        fn a_part_never_loosens_a_page(a in lifetime(), b in lifetime()) {
            let both = a.and(b);
            prop_assert_eq!(both.restrictions & a.restrictions, a.restrictions);
            prop_assert!(both.max_age <= a.max_age && both.shared_age <= a.shared_age);
            prop_assert!(a.is_public || !both.is_public);
        }
    }
}
