//! The identity of the rules that decide who may share a stored response: cookies that make a request personal,
//! components of the key, ignored names in `Vary`. Keys contain it, so that responses stored under more permissive
//! rules are not found under stricter ones: after a reload, after a restart with a disk tier, and in other processes
//! with a common tier.
//!
//! Lifetimes, tags and origins do not decide about sharing, and change no key.

use xxhash_rust::xxh3::xxh3_64;

use crate::edge::EdgeMode;
use crate::patterns::Patterns;
use crate::rules::{Query, Rules, SetCookie};

pub use crate::rules::Seal;

impl Rules {
    /// The same rules with their identity in keys. Settings for sharing and compression must not be changed afterwards.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        let own = of_sharing(&self);
        self.key.seal = if self.are_private() {
            Seal::None
        } else if own == of_sharing(&Self::default()) {
            Seal::Usual
        } else {
            Seal::Own(xxh3_64(&own))
        };
        self.compress = self.compress.numbered();
        self
    }
}

/// The encoding of all settings that decide about sharing. Different settings have different encodings, also across
/// versions: the next version of this program reads the disk tier of this one.
fn of_sharing(rules: &Rules) -> Vec<u8> {
    let Rules { key, request, .. } = rules;
    let mut out = Vec::new();
    push_names(&mut out, rules.cookies_ignored.written());
    push_names(&mut out, request.removed_cookies.written());
    push_names(&mut out, request.removed_fields.written());
    push_names(&mut out, request.kept_fields.written());
    push_names(&mut out, sorted(&rules.vary_ignored));
    // Their order matters: the first one in a response counts.
    push_names(
        &mut out,
        rules.targeted.iter().map(|name| lower(name)).collect(),
    );
    push_names(
        &mut out,
        key.headers.iter().map(|name| lower(name)).collect(),
    );
    let cookies = key.cookies.iter().map(|name| name.as_bytes().to_vec());
    push_names(&mut out, cookies.collect());
    let (query, parameters) = match &key.query {
        Query::All => (0, &Patterns::new()),
        Query::Except(patterns) => (1, patterns),
        Query::Only(patterns) => (2, patterns),
    };
    push_names(&mut out, parameters.written());
    let set_cookie = match rules.set_cookie {
        SetCookie::Refuse => 0,
        SetCookie::Strip => 1,
        SetCookie::Store => 2,
    };
    out.extend([query, u8::from(key.whole_query), set_cookie]);
    // Appended only if set, so that keys of earlier versions stay valid.
    if !request.forwarded_fields.is_empty() {
        push_names(&mut out, request.forwarded_fields.written());
    }
    if !request.trusted_fields.is_empty() {
        out.extend(b"trusted");
        push_names(&mut out, request.trusted_fields.written());
    }
    if !request.granted_fields.is_empty() {
        out.extend(b"granted");
        push_names(&mut out, request.granted_fields.written());
    }
    if !request.set_fields.is_empty() {
        out.extend(b"set");
        let names = request.set_fields.iter().map(|edit| lower(&edit.name));
        push_names(&mut out, names.collect());
    }
    // A page that was stored for composing must not be sent as it is.
    match rules.edge {
        EdgeMode::Off => {}
        EdgeMode::Announced => out.extend(b"edge"),
        EdgeMode::Always => out.extend(b"edge always"),
    }
    // A page that was stored under other edits has other holes.
    if !rules.page_edits.is_empty() {
        out.extend(b"page edits");
        push_names(&mut out, vec![rules.page_edits.as_bytes().to_vec()]);
    }
    if rules.anonymous_ttl.is_some() {
        out.extend(b"anonymous");
    }
    if rules.user_context {
        out.extend(b"user context");
    }
    if key.sort {
        out.extend(b"sort");
    }
    if let Some(route) = &key.route {
        out.extend(b"route");
        push_names(&mut out, vec![route.as_bytes().to_vec()]);
    }
    out
}

fn push_names(out: &mut Vec<u8>, names: Vec<Vec<u8>>) {
    let push_number = |out: &mut Vec<u8>, number: usize| {
        out.extend_from_slice(&(number as u64).to_le_bytes());
    };
    push_number(out, names.len());
    for name in names {
        push_number(out, name.len());
        out.extend_from_slice(&name);
    }
}

fn sorted(names: &[String]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = names.iter().map(|name| lower(name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn lower(name: &str) -> Vec<u8> {
    name.to_ascii_lowercase().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{KeyRules, RequestRules};

    fn with_key(key: KeyRules) -> Rules {
        Rules {
            key,
            ..Rules::default()
        }
    }

    fn with_query(query: Query) -> Rules {
        with_key(KeyRules {
            query,
            ..KeyRules::default()
        })
    }

    fn with_request(request: RequestRules) -> Rules {
        Rules {
            request,
            ..Rules::default()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_rule_of_sharing_makes_another_seal() {
        let all = vec![
            Rules {
                cookies_ignored: Patterns::from_iter(["theme"]),
                ..Rules::default()
            },
            Rules {
                cookies_ignored: Patterns::from_iter(["theme*"]),
                ..Rules::default()
            },
            Rules {
                set_cookie: SetCookie::Strip,
                ..Rules::default()
            },
            Rules {
                set_cookie: SetCookie::Store,
                ..Rules::default()
            },
            Rules {
                vary_ignored: names(&["theme"]),
                ..Rules::default()
            },
            Rules {
                targeted: names(&["theme"]),
                ..Rules::default()
            },
            Rules {
                targeted: Vec::new(),
                ..Rules::default()
            },
            Rules {
                edge: EdgeMode::Announced,
                ..Rules::default()
            },
            Rules {
                edge: EdgeMode::Always,
                ..Rules::default()
            },
            Rules {
                page_edits: "hole #cart /cart".to_owned(),
                ..Rules::default()
            },
            Rules {
                page_edits: "hole #cart /box".to_owned(),
                ..Rules::default()
            },
            Rules {
                anonymous_ttl: Some(1_000),
                ..Rules::default()
            },
            Rules {
                user_context: true,
                ..Rules::default()
            },
            with_request(RequestRules {
                removed_cookies: Patterns::from_iter(["theme"]),
                ..RequestRules::default()
            }),
            with_request(RequestRules {
                removed_fields: ["theme"].into_iter().collect(),
                ..RequestRules::default()
            }),
            with_request(RequestRules {
                kept_fields: ["theme"].into_iter().collect(),
                ..RequestRules::default()
            }),
            with_request(RequestRules {
                trusted_fields: ["theme"].into_iter().collect(),
                ..RequestRules::default()
            }),
            with_request(RequestRules {
                forwarded_fields: ["theme"].into_iter().collect(),
                ..RequestRules::default()
            }),
            with_key(KeyRules {
                headers: names(&["theme"]),
                ..KeyRules::default()
            }),
            with_key(KeyRules {
                cookies: names(&["theme"]),
                ..KeyRules::default()
            }),
            with_query(Query::Except(Patterns::from_iter(["theme"]))),
            with_query(Query::Only(Patterns::from_iter(["theme"]))),
            with_key(KeyRules {
                query: Query::Only(Patterns::from_iter(["theme"])),
                whole_query: true,
                ..KeyRules::default()
            }),
            with_key(KeyRules {
                sort: true,
                ..KeyRules::default()
            }),
        ];
        let seals = all.into_iter().map(|rules| rules.sealed().key.seal);
        let seals: Vec<_> = seals.collect();
        for (at, seal) in seals.iter().enumerate() {
            assert!(matches!(seal, Seal::Own(_)), "{at}");
            assert!(!seals[..at].contains(seal), "{at}");
        }
    }

    #[test]
    fn options_irrelevant_to_sharing_change_no_seal() {
        let other = Rules {
            ttl: 5,
            status_ttl: vec![(404, 5)],
            forced_ttl: Some(5),
            stale_while_revalidate: 5,
            stale_if_error: 5,
            heuristic: Some(5),
            tag_fields: Vec::new(),
            languages: names(&["de"]),
            ..Rules::default()
        };
        assert_eq!(other.sealed().key.seal, Seal::Usual);
        let seal = |ignored: &[&str]| {
            let rules = Rules {
                cookies_ignored: ignored.iter().collect(),
                vary_ignored: names(&["B", "a"]),
                ..Rules::default()
            };
            rules.sealed().key.seal
        };
        assert_eq!(seal(&["a", "b*"]), seal(&["b*", "a", "bc*"]));
        // Disk tiers hold responses stored under it.
        assert_eq!(seal(&["a"]), Seal::Own(0x651a_a3b7_8034_2291));
        assert_eq!(Rules::private().sealed().key.seal, Seal::None);
    }
}
