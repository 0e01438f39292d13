//! What a cache must know of a response, read in one pass over its fields.

use crate::cookies;
use crate::directives::{self, Argument, Directive, ResponseDirectives};
use crate::fields::{Fields, Line, split_list};
use crate::hop::Nominated;
use crate::patterns::takes;
use crate::rules::Rules;
use crate::tags::{self, Tags, TooManyTags};
use crate::targeted;
use crate::vary::{self, Vary};

/// A response's fields, and what they say on a route with these rules. What is to be read of them
/// later, such as a date, is only found.
#[derive(Debug)]
pub struct ResponseFacts<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) rules: &'a Rules,
    /// The directives that count: those of the first valid targeted field, else those of
    /// `Cache-Control` (RFC 9213 §2.2).
    pub(crate) said: Said,
    /// Whether a targeted field said so.
    pub(crate) is_targeted: bool,
    pub(crate) seen: Seen<'a>,
    pub(crate) vary: Vary,
    pub(crate) tags: Result<Tags<'a>, TooManyTags>,
}

/// What directives say, wherever they stand.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) directives: ResponseDirectives,
    /// The names in `private="…"` and `no-cache="…"` (RFC 9111 §5.2.2.4, §5.2.2.7).
    pub(crate) qualified: Vec<Box<[u8]>>,
}

/// What other fields say.
#[derive(Debug, Default)]
pub(crate) struct Seen<'a> {
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) has_set_cookie: bool,
    pub(crate) etag: Option<&'a [u8]>,
    has_pragma_no_cache: bool,
    /// The first member of `Age`.
    pub(crate) age: Option<&'a [u8]>,
    pub(crate) date: Option<&'a [u8]>,
    pub(crate) last_modified: Option<&'a [u8]>,
    pub(crate) expires: Option<&'a [u8]>,
    /// There is another `Expires` that says something else.
    pub(crate) expires_differ: bool,
    /// The fields that `Connection` names.
    pub(crate) nominated: Nominated<'a>,
}

impl<'a> ResponseFacts<'a> {
    /// Reads the fields once.
    pub fn read(fields: Fields<'a>, rules: &'a Rules) -> Self {
        let mut cache_control = None;
        let mut has_targeted = false;
        let (mut vary, mut tags) = (vary::Lines::default(), tags::Lines::default());
        let mut seen = Seen::default();
        for line in fields.lines() {
            if let Some(value) = line.value_of("cache-control") {
                let said = cache_control.get_or_insert_with(Said::default);
                for (name, argument) in directives::of_line(value) {
                    said.note(name, argument, rules);
                }
            } else if let Some(value) = line.value_of("vary") {
                vary.note(value);
            } else {
                seen.note(line);
            }
            // The operator names these, so any line may be one of them.
            tags.note(line, rules);
            let is = |name: &String| line.value_of(name).is_some();
            has_targeted |= rules.targeted.iter().any(is);
        }
        let targeted = has_targeted
            .then(|| Said::by_targeted(fields, rules))
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
            tags: tags.finish(),
        }
    }

    /// What its `Vary` says, but for the names that the route ignores ([`Rules::vary_ignored`]).
    pub fn into_vary(self) -> Vary {
        self.vary
    }

    /// Its tags and groups, from the route's [`tag_fields`](Rules::tag_fields) and `Cache-Groups`. One
    /// that is named twice counts once. With too many of them the response is not storable: a purge
    /// would miss it.
    pub fn tags(&self) -> Result<&Tags<'a>, TooManyTags> {
        self.tags.as_ref().map_err(|&too_many| too_many)
    }

    pub(crate) const fn says(&self, directive: Directive) -> bool {
        self.said.directives.says(directive)
    }

    /// An old `Pragma: no-cache`, where no `Cache-Control` and no targeted field speaks.
    pub(crate) const fn says_pragma_no_cache(&self) -> bool {
        self.seen.has_pragma_no_cache
    }

    /// Whether it sets a cookie that is part of the key: then it may be the page for the value that it sets, and not for
    /// the one under which it would be stored.
    pub(crate) fn sets_keyed_cookie(&self) -> bool {
        let keyed = &self.rules.key.cookies;
        let mut set = self.fields.all("set-cookie").map(|cookie| {
            let pair = cookie.split(|&b| b == b';').next().unwrap_or_default();
            cookies::split(pair).0.trim_ascii()
        });
        set.any(|name| keyed.iter().any(|one| takes(one.as_bytes(), name)))
    }

    /// Whether the origin can be asked if it is still good.
    pub(crate) const fn has_validator(&self) -> bool {
        self.seen.etag.is_some() || self.seen.last_modified.is_some()
    }
}

impl Said {
    /// What the targeted fields say, if one of them is valid and not empty.
    fn by_targeted(response: Fields<'_>, rules: &Rules) -> Option<Self> {
        let members = targeted::select(response, &rules.targeted)?;
        let mut said = Self::default();
        for (name, argument) in targeted::arguments(&members) {
            said.note(name, argument, rules);
        }
        Some(said)
    }

    fn note(&mut self, name: &[u8], argument: Argument<'_>, rules: &Rules) {
        self.directives.note(name, argument);
        let restricts = name.eq_ignore_ascii_case(b"no-cache")
            || !rules.are_private() && name.eq_ignore_ascii_case(b"private");
        if restricts {
            self.qualified.extend(argument.field_names().map(Box::from));
        }
    }
}

impl<'a> Seen<'a> {
    /// Takes in one line. The first letter tells most lines from those that matter here.
    fn note(&mut self, line: Line<'a>) {
        match line.initial() {
            b'a' => {
                if let Some(value) = line.value_of("age") {
                    self.age = self.age.or_else(|| split_list(value).next());
                }
            }
            b'c' => {
                if let Some(value) = line.value_of("content-type") {
                    self.content_type.get_or_insert(value);
                } else if let Some(value) = line.value_of("connection") {
                    self.nominated.note(value);
                }
            }
            b'd' => {
                if let Some(value) = line.value_of("date") {
                    self.date.get_or_insert(value);
                }
            }
            b'e' => {
                if let Some(value) = line.value_of("expires") {
                    self.expires_differ |= *self.expires.get_or_insert(value) != value;
                } else {
                    self.etag = self.etag.or_else(|| line.value_of("etag"));
                }
            }
            b'l' => {
                if let Some(value) = line.value_of("last-modified") {
                    self.last_modified.get_or_insert(value);
                }
            }
            b'p' => {
                if let Some(value) = line.value_of("pragma") {
                    self.has_pragma_no_cache |=
                        split_list(value).any(|member| member.eq_ignore_ascii_case(b"no-cache"));
                }
            }
            b's' => self.has_set_cookie |= line.value_of("set-cookie").is_some(),
            _ => {}
        }
    }
}
