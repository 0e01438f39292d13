//! The caching semantics of a response, parsed in one pass over its fields.

use crate::cookies;
use crate::directives::{self, Directive, DirectiveArgument, ResponseDirectives};
use crate::fields::{Fields, split_list};
use crate::hop::NominatedFields;
use crate::known_name::{KnownName, names};
use crate::patterns::takes;
use crate::rules::Rules;
use crate::tags::Tags;
use crate::targeted;
use crate::vary::{self, Vary};

/// The fields of a response and their meaning on a route with these rules. Values needed later, such as dates, are
/// located but not parsed.
#[derive(Debug)]
pub struct ResponseFacts<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) rules: &'a Rules,
    /// The effective directives: those of the first valid targeted field, else those of `Cache-Control` (RFC 9213
    /// §2.2).
    pub(crate) said: EffectiveDirectives,
    /// They come from a targeted field.
    pub(crate) is_targeted: bool,
    pub(crate) seen: ResponseFields<'a>,
    pub(crate) vary: Vary,
    pub(crate) tags: Tags<'a>,
}

/// Directives of a targeted field or of `Cache-Control`.
#[derive(Debug, Default)]
pub(crate) struct EffectiveDirectives {
    pub(crate) directives: ResponseDirectives,
    /// The names in `private="…"` and `no-cache="…"` (RFC 9111 §5.2.2.4, §5.2.2.7).
    pub(crate) qualified: Vec<Box<[u8]>>,
}

/// The values of other fields.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct ResponseFields<'a> {
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) has_set_cookie: bool,
    pub(crate) etag: Option<&'a [u8]>,
    has_pragma_no_cache: bool,
    has_age: bool,
    has_vary: bool,
    /// The first member of `Age`.
    pub(crate) age: Option<&'a [u8]>,
    pub(crate) date: Option<&'a [u8]>,
    pub(crate) last_modified: Option<&'a [u8]>,
    pub(crate) expires: Option<&'a [u8]>,
    /// There are two different values of `Expires`.
    pub(crate) expires_differ: bool,
    /// The fields nominated by `Connection`.
    pub(crate) nominated: NominatedFields<'a>,
}

impl<'a> ResponseFacts<'a> {
    /// Parses the fields in one pass.
    pub fn read(fields: Fields<'a>, rules: &'a Rules) -> Self {
        let mut cache_control = None;
        let mut has_targeted = false;
        let (mut vary, mut tags) = (vary::VaryLines::default(), Tags::default());
        let mut seen = ResponseFields::default();
        for line in fields.lines() {
            match line.known() {
                Some(names::CACHE_CONTROL) => {
                    let said = cache_control.get_or_insert_with(EffectiveDirectives::default);
                    for (name, argument) in directives::of_line(line.value()) {
                        said.note(name, argument, rules);
                    }
                }
                Some(names::VARY) => {
                    seen.has_vary = true;
                    vary.note(line.value());
                }
                Some(name) => seen.note(name, line.value()),
                None => {}
            }
            // The names are configured, so any line may match.
            tags.note(line, rules);
            let is = |name: &String| line.value_of(name).is_some();
            has_targeted |= rules.targeted.iter().any(is);
        }
        let targeted = has_targeted
            .then(|| EffectiveDirectives::by_targeted(fields, rules))
            .flatten();
        let is_targeted = targeted.is_some();
        seen.has_pragma_no_cache &= cache_control.is_none() && !is_targeted;
        let mut said = targeted.or(cache_control).unwrap_or_default();
        if rules.are_private() {
            said.directives = said.directives.for_private_cache();
        }
        Self {
            fields,
            rules,
            said,
            is_targeted,
            seen,
            vary: vary.finish(&rules.vary_ignored),
            tags,
        }
    }

    /// Its `Vary`, without the names that the route ignores ([`Rules::vary_ignored`]).
    pub fn into_vary(self) -> Vary {
        self.vary
    }

    /// Returns true if it has an `Age`.
    pub const fn has_age(&self) -> bool {
        self.seen.has_age
    }

    /// Returns true if it has a `Vary`.
    pub const fn has_vary(&self) -> bool {
        self.seen.has_vary
    }

    /// Its tags and groups, from the route's [`tag_fields`](Rules::tag_fields) and `Cache-Groups`.
    pub const fn tags(&self) -> &Tags<'a> {
        &self.tags
    }

    pub(crate) const fn says(&self, directive: Directive) -> bool {
        self.said.directives.says(directive)
    }

    /// Returns true for `Pragma: no-cache` without `Cache-Control` and targeted field.
    pub(crate) const fn says_pragma_no_cache(&self) -> bool {
        self.seen.has_pragma_no_cache
    }

    /// Returns true if it sets a cookie of the key: it may be the page for the new value, and not for the one in the
    /// key.
    pub(crate) fn sets_keyed_cookie(&self) -> bool {
        let keyed = &self.rules.key.cookies;
        let mut set = self.fields.values(names::SET_COOKIE).map(cookies::set_name);
        set.any(|name| keyed.iter().any(|one| takes(one.as_bytes(), name)))
    }

    /// Returns true if it has a validator.
    pub(crate) const fn has_validator(&self) -> bool {
        self.seen.etag.is_some() || self.seen.last_modified.is_some()
    }
}

impl EffectiveDirectives {
    /// The directives of the first targeted field that is valid and not empty.
    fn by_targeted(response: Fields<'_>, rules: &Rules) -> Option<Self> {
        let members = targeted::select(response, &rules.targeted)?;
        let mut said = Self::default();
        for (name, argument) in targeted::arguments(&members) {
            said.note(name, argument, rules);
        }
        Some(said)
    }

    fn note(&mut self, name: &[u8], argument: DirectiveArgument<'_>, rules: &Rules) {
        self.directives.note(name, argument);
        let restricts = name.eq_ignore_ascii_case(b"no-cache")
            || !rules.are_private() && name.eq_ignore_ascii_case(b"private");
        if restricts {
            self.qualified.extend(argument.field_names().map(Box::from));
        }
    }
}

impl<'a> ResponseFields<'a> {
    /// Adds one line.
    fn note(&mut self, name: KnownName, value: &'a [u8]) {
        match name {
            names::AGE => {
                self.has_age = true;
                self.age = self.age.or_else(|| split_list(value).next());
            }
            names::CONNECTION => self.nominated.note(value),
            names::CONTENT_TYPE => {
                self.content_type.get_or_insert(value);
            }
            names::DATE => {
                self.date.get_or_insert(value);
            }
            names::ETAG => {
                self.etag.get_or_insert(value);
            }
            names::EXPIRES => {
                self.expires_differ |= *self.expires.get_or_insert(value) != value;
            }
            names::LAST_MODIFIED => {
                self.last_modified.get_or_insert(value);
            }
            names::PRAGMA => {
                self.has_pragma_no_cache |=
                    split_list(value).any(|member| member.eq_ignore_ascii_case(b"no-cache"));
            }
            names::SET_COOKIE => self.has_set_cookie = true,
            _ => {}
        }
    }
}
