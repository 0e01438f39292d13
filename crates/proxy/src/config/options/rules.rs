//! Options that say how responses are kept: at the top for all routes, in a route for itself.

use std::ops::RangeInclusive;

use microcache_policy::patterns::takes;
use microcache_policy::rules::{KeyRules, Query, Reload, SetCookie};
use microcache_policy::{
    Fate, Millis, RequestRules, Separator, TagField, fate, only_from_trusted_peers,
};

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::raw::Value;
use super::super::route::{Condition, Watching};
use super::LIFETIME;
use super::route::{KEY, RouteDraft, field_name};

const OBJECT: RangeInclusive<u64> = 1..=1 << 44;

/// Options that say how responses are kept.
pub(in crate::config) const RULES: &[Opt<RouteDraft>] = &[
    Opt {
        about: About {
            name: "ttl",
            form: Form::Duration,
            unset: Unset::Is(r#""1s""#),
            example: r#""1s""#,
            help: "How long a response is fresh when the origin does not say",
            more: "What the origin says in Cache-Control or Expires comes first. `\"0s\"` keeps nothing that the \
                   origin does not ask to keep.",
        },
        set: |r, v, m| m.put(&mut r.route.rules.ttl, v.millis(&LIFETIME)),
    },
    Opt {
        about: About {
            name: "stale_while_revalidate",
            form: Form::Duration,
            unset: Unset::Is(r#""10s""#),
            example: r#""10s""#,
            help: "How long a stale response is served while it is refreshed",
            more: "One request refreshes it, and nobody waits for that, however long it takes. Holds when the response has no directive of that name.",
        },
        set: |r, v, m| {
            m.put(
                &mut r.route.rules.stale_while_revalidate,
                v.millis(&LIFETIME),
            );
        },
    },
    Opt {
        about: About {
            name: "stale_if_error",
            form: Form::Duration,
            unset: Unset::Is(r#""1d""#),
            example: r#""1d""#,
            help: "How long a stale response is served when the origin fails",
            more: "Errors, time-outs and lost connections. Holds when the response has no directive of that name.",
        },
        set: |r, v, m| m.put(&mut r.route.rules.stale_if_error, v.millis(&LIFETIME)),
    },
    Opt {
        about: About {
            name: "forced_ttl",
            form: Form::Text("DURATION|origin"),
            unset: Unset::Is(r#""origin""#),
            example: r#""5m""#,
            help: "How long a response is fresh, whatever the origin says about it",
            more: "It decides how long, not whether: `private`, `no-store`, Set-Cookie and the other safe rules keep \
                   their say. With `origin`, what the origin says counts.",
        },
        set: |r, v, m| m.put(&mut r.route.rules.forced_ttl, forced_ttl(v)),
    },
    Opt {
        about: About {
            name: "status_ttl",
            form: Form::Table("status codes and durations"),
            unset: Unset::Is("{}"),
            example: r#"{ 404 = "10s", 503 = "1s" }"#,
            help: "`ttl` for single status codes",
            more: "A status that is named here may be kept even if it otherwise is not.",
        },
        set: set_status_ttl,
    },
    Opt {
        about: About {
            name: "heuristic",
            form: Form::Number,
            unset: Unset::Is("0"),
            example: "10",
            help: "Percent of a response's age at the origin that it stays fresh, instead of `ttl`",
            more: "The rule of RFC 9111, section 4.2.2, for responses with Last-Modified. 0 turns it off.",
        },
        set: |r, v, m| {
            let percent = v
                .count(0..=100)
                .map(|n| u8::try_from(n).ok().filter(|n| *n > 0));
            m.put(&mut r.route.rules.heuristic, percent);
        },
    },
    Opt {
        about: About {
            name: "targeted",
            form: Form::List("FIELD"),
            unset: Unset::Is(r#"["CDN-Cache-Control"]"#),
            example: r#"["Microcache-Cache-Control", "CDN-Cache-Control"]"#,
            help: "Response fields that override Cache-Control here, most important first",
            more: "A lifetime in one of them says that everybody gets the same, visitors with cookies too. See RFC 9213.",
        },
        set: |r, v, m| r.route.rules.targeted = v.each(m, |item| item.parse(field_name)),
    },
    Opt {
        about: About {
            name: "tag_fields",
            form: Form::List("FIELD[=SEPARATOR]"),
            unset: Unset::Is(r#"["Cache-Tag=comma", "Surrogate-Key=space", "xkey=both"]"#),
            example: r#"["X-Magento-Tags=comma"]"#,
            help: "Response fields with the tags of a response, for purges",
            more: "What separates the tags is `comma`, `space` or `both`; if it is left out, what is usual for that field, which is \
                   `comma` for most. `Cache-Groups` (RFC 9875) is always read.",
        },
        set: |r, v, m| r.route.rules.tag_fields = v.each(m, |item| item.parse(tag_field)),
    },
    Opt {
        about: About {
            name: "set_cookie",
            form: Form::Text("refuse|strip|store"),
            unset: Unset::Is(r#""refuse""#),
            example: r#""strip""#,
            help: "What becomes of a response with Set-Cookie",
            more: "`refuse` does not keep it, `strip` keeps it without the cookie, `store` gives the cookie to everyone.",
        },
        set: set_set_cookie,
    },
    Opt {
        about: About {
            name: "ignore_cookies",
            form: Form::List("NAME"),
            unset: Unset::Is("[]"),
            example: r#"["theme", "consent_*"]"#,
            help: "Cookies that do not make a request personal, beside the well-known ones",
            more: "A `*` at the end stands for any rest. The application does not see them on a fetch whose answer is shared, so a page must not depend on them.",
        },
        set: set_ignore_cookies,
    },
    Opt {
        about: About {
            name: "remove_cookies",
            form: Form::List("NAME"),
            unset: Unset::Is("[]"),
            example: r#"["_ga", "_gid", "theme_*"]"#,
            help: "Cookies of requests that the origin does not get",
            more: "They make no request personal and count nowhere, since no page can depend on them. `*` alone removes all. \
                   A `*` at the end stands for any rest.",
        },
        set: |r, v, m| {
            let names = v.each(m, |item| item.parse(name_pattern));
            r.route.rules.request.removed_cookies = names.into_iter().collect();
        },
    },
    Opt {
        about: About {
            name: "remove_headers",
            form: Form::List("FIELD"),
            unset: Unset::Is("[]"),
            example: r#"["X-Experiment", "Accept-Language"]"#,
            help: "Request fields that the origin does not get",
            more: "They count nowhere, since no page can depend on them. A `*` at the end stands for any rest. \
                   `X-Forwarded-For` and the like, which Microcache adds, can be removed too.",
        },
        set: |r, v, m| {
            let names = v.each(m, |item| item.parse(removable_field));
            r.route.rules.request.removed_fields = names.into_iter().collect();
        },
    },
    Opt {
        about: About {
            name: "keep_headers",
            form: Form::List("FIELD"),
            unset: Unset::Is("[]"),
            example: r#"["api_key"]"#,
            help: "Request fields that the origin gets from everybody, though they are removed by default",
            more: "Those that only a proxy in front may set, such as `X-Original-URL`, and names with something else than \
                   letters, digits and hyphens. They become part of the key, but for addresses. A `*` at the end stands for any rest.",
        },
        set: |r, v, m| {
            let names = v.each(m, |item| item.parse(keepable_field));
            r.route.rules.request.kept_fields = names.into_iter().collect();
        },
    },
    Opt {
        about: About {
            name: "forward_fields",
            form: Form::List("FIELD"),
            unset: Unset::Is("[]"),
            example: r#"["X-Request-Source"]"#,
            help: "Request fields that are sent for everyone although nobody knows them",
            more: "A fetch whose answer is shared leaves out fields that are neither well known, nor in `key.headers`, nor in the \
                   `Vary` of the url. These it sends as the client who comes first has them: a page must not depend on them, \
                   or that client decides what all others see. `key.headers` is nearly always what is wanted. A `*` at the \
                   end stands for any rest.",
        },
        set: set_forward_fields,
    },
    Opt {
        about: About {
            name: "ignore_vary",
            form: Form::List("FIELD"),
            unset: Unset::Is("[]"),
            example: r#"["User-Agent"]"#,
            help: "Request fields whose mention in `Vary` does not count",
            more: "Responses that differ by them are taken to be the same: everyone gets the one that came first. For applications \
                   that say `Vary: User-Agent` and send everyone the same page.",
        },
        set: |r, v, m| r.route.rules.vary_ignored = v.each(m, |item| item.parse(field_name)),
    },
    Opt {
        about: About {
            name: "languages",
            form: Form::List("LANGUAGE"),
            unset: Unset::Is("[]"),
            example: r#"["en", "de", "pt-BR"]"#,
            help: "The languages of the site, by which `Accept-Language` is told apart",
            more: "Of what a browser prefers, only the first of these that fits (`de-CH` fits `de`) counts and reaches the origin. Without \
                   them, every other order of preference is another variant of a page that varies on Accept-Language.",
        },
        set: |r, v, m| r.route.rules.languages = v.each(m, |item| item.parse(language)),
    },
    Opt {
        about: About {
            name: "reload",
            form: Form::Text("ignore|honour"),
            unset: Unset::Is(r#""ignore""#),
            example: r#""ignore""#,
            help: "Whether a browser's reload reaches the origin",
            more: "",
        },
        set: |r, v, m| m.put(&mut r.route.rules.reload, v.choice(RELOAD)),
    },
    Opt {
        about: About {
            name: "max_object",
            form: Form::Size,
            unset: Unset::Says("1/16 of memory"),
            example: r#""8MiB""#,
            help: "The largest body that is kept; larger ones stream through",
            more: "At most a quarter of the memory.",
        },
        set: |r, v, m| m.put(&mut r.route.max_object, v.size(&OBJECT).map(Some)),
    },
    Opt {
        about: About {
            name: "bypass",
            form: Form::List("CONDITION"),
            unset: Unset::Is("[]"),
            example: r#"["cookie:preview", "header:X-Debug=1", "query:draft"]"#,
            help: "Requests that go to the origin, uncached",
            more: "`header:`, `cookie:` or `query:`, a name, and `=` with a value if it must be equal. One that holds \
                   is enough. A `*` at the end of a name stands for any rest, and in a value for any run of \
                   characters: `cookie:wordpress_logged_in_*`, `header:User-Agent=*bot*`. Values are compared letter by letter, case included.",
        },
        set: |r, v, m| r.route.bypass = v.each(m, |item| item.parse(Condition::parse)),
    },
    Opt {
        about: About {
            name: "pass",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "false",
            help: "Send everything to the origin and keep nothing",
            more: "",
        },
        set: |r, v, m| m.put(&mut r.route.pass, v.switch()),
    },
    Opt {
        about: About {
            name: "collapse",
            form: Form::Switch,
            unset: Unset::Is("true"),
            example: "true",
            help: "Ask the origin once for all who want the same at the same time",
            more: "With `false` every miss is a request to the origin, as in caches without this. That is for comparisons.",
        },
        set: |r, v, m| m.put(&mut r.route.collapse, v.switch()),
    },
    Opt {
        about: About {
            name: "watch",
            form: Form::Text("WHAT"),
            unset: Unset::Is(r#""off""#),
            example: r#""refresh""#,
            help: "Tell whoever watches a page that it has changed: `refresh`, `stored` or `off`",
            more: "`stored`: when another version of it is stored, or it is purged. `refresh`: it is also asked for whenever it is not fresh,                    at most once a second, as long as somebody watches it. Told is what a request without cookies would be given.                    [docs/live.md](live.md) has the line that makes a page update itself.",
        },
        set: |r, v, m| {
            m.put(
                &mut r.route.watch,
                v.choice(&[
                    ("off", Watching::Off),
                    ("stored", Watching::Stored),
                    ("refresh", Watching::Refresh),
                ]),
            );
        },
    },
    Opt {
        about: About {
            name: "key",
            form: Form::Table("what makes up the key"),
            unset: Unset::Says("host, path and whole query"),
            example: r#"{ query = { ignore = ["utm_*", "fbclid"] }, headers = ["X-Country"], cookies = ["currency"] }"#,
            help: "What beside host and path tells responses apart",
            more: "A route's `key` replaces the one at the top as a whole.",
        },
        set: |r, v, m| {
            if let Some(table) = m.ok(v.table()) {
                let mut key = KeyRules::default();
                table.apply(KEY, &mut key, m);
                table.refuse_rest_inside("key", m);
                r.route.rules.key = key;
            }
        },
    },
];

const SET_COOKIE: &[(&str, SetCookie)] = &[
    ("refuse", SetCookie::Refuse),
    ("strip", SetCookie::Strip),
    ("store", SetCookie::Store),
];

const RELOAD: &[(&str, Reload)] = &[("ignore", Reload::Ignore), ("honour", Reload::Honour)];

fn forced_ttl(value: &Value) -> Result<Option<Millis>, Mistake> {
    if value.text().is_ok_and(|text| text == "origin") {
        return Ok(None);
    }
    value.millis(&LIFETIME).map(Some)
}

fn set_status_ttl(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut ttls: Vec<(u16, Millis)> = Vec::new();
    for (key, ttl) in table.entries() {
        let status = key.name.parse().ok();
        match status.filter(|s| (200..=599).contains(s) && ![206, 304].contains(s)) {
            Some(status) => {
                let ttl = mistakes.ok(ttl.millis(&LIFETIME));
                ttls.extend(ttl.map(|ttl| (status, ttl)));
            }
            None => mistakes.note(
                Mistake::new(
                    &key.place,
                    format!("`{}` is no status that can be kept", key.name),
                )
                .remedy("write one from 200 to 599, but for 206 and 304"),
            ),
        }
    }
    draft.route.rules.status_ttl = ttls;
}

fn set_set_cookie(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    mistakes.put(&mut draft.route.rules.set_cookie, value.choice(SET_COOKIE));
    if draft.route.rules.set_cookie == SetCookie::Store {
        let what = "\"store\" gives the cookie that was set for one visitor to everyone";
        mistakes.warn(
            Mistake::new(&value.place, what)
                .remedy("if it can be a session, others are logged in with it: \"strip\" keeps the page without it"),
        );
    }
}

fn set_ignore_cookies(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let own = value.each(mistakes, |item| item.parse(name_pattern));
    for item in value.items() {
        if let Ok(pattern) = item.text()
            && let Some(name) = personal_taken_by(pattern)
        {
            let what = format!(
                "`{pattern}` ignores a cookie that says who a visitor is, such as `{name}`"
            );
            mistakes.warn(Mistake::new(&item.place, what).remedy(
                "a page for one visitor may be given to all: name cookies that change no page, or add bypass = \"cookie:NAME\"",
            ));
        }
    }
    draft.route.rules.cookies_ignored = own.into_iter().collect();
}

fn set_forward_fields(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let names = value.each(mistakes, |item| item.parse(field_pattern));
    if let (Some(name), Some(item)) = (names.first(), value.items().first()) {
        let what =
            format!("`{name}` of one client decides what everyone sees, if a page depends on it");
        mistakes.warn(
            Mistake::new(&item.place, what)
                .remedy("name it in `key.headers`: each of its values then has pages of its own"),
        );
    }
    draft.route.rules.request.forwarded_fields = names.into_iter().collect();
}

/// Cookies by which well-known programs know who a visitor is: sessions, sign-ins, passwords of pages, baskets, and the
/// name of whoever has left a comment.
const PERSONAL: [&str; 55] = [
    "PHPSESSID",
    "JSESSIONID",
    ".ASPXAUTH",
    ".AspNetCore.Cookies",
    ".AspNetCore.Session",
    "ASP.NET_SessionId",
    "AWSELBAuthSessionCookie-0",
    "CAKEPHP",
    "CFID",
    "CF_Authorization",
    "KEYCLOAK_IDENTITY",
    "OCSESSID",
    "PrestaShop-0123456789abcdef",
    "SESS0123456789abcdef",
    "SSESS0123456789abcdef",
    "X-Magento-Vary",
    "XSRF-TOKEN",
    "__Host-session",
    "__Secure-next-auth.session-token",
    "_app_key",
    "_app_session",
    "_oauth2_proxy",
    "_session_id",
    "access_token",
    "auth_token",
    "bb_sessionhash",
    "be_typo_user",
    "ci_session",
    "comment_author_0123456789abcdef",
    "comment_author_email_0123456789abcdef",
    "comment_author_url_0123456789abcdef",
    "connect.sid",
    "csrftoken",
    "fe_typo_user",
    "form_key",
    "frontend",
    "ghost-members-ssr",
    "jwt",
    "laravel_session",
    "next-auth.session-token",
    "phpbb3_abcde_sid",
    "rack.session",
    "remember_token",
    "session",
    "sessionid",
    "sid",
    "token",
    "woocommerce_cart_hash",
    "woocommerce_items_in_cart",
    "wordpress_0123456789abcdef",
    "wordpress_logged_in_0123456789abcdef",
    "wordpress_sec_0123456789abcdef",
    "wp-postpass_0123456789abcdef",
    "wp-settings-1",
    "wp_woocommerce_session_0123456789abcdef",
];

/// A cookie that says who a visitor is, and that a pattern would take.
fn personal_taken_by(pattern: &str) -> Option<&'static str> {
    let takes = |name: &&str| takes(pattern.as_bytes(), name.as_bytes());
    PERSONAL.into_iter().find(takes)
}

/// A field with tags, and what separates them there.
fn tag_field(text: &str) -> Result<TagField, String> {
    let (name, separator) = text.split_once('=').unzip();
    let name = field_name(name.unwrap_or(text))?;
    let usual = || {
        let mut known = TagField::WELL_KNOWN.into_iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(&name));
        found.map_or(Separator::Comma, |(_, separator)| separator)
    };
    let separator = match separator {
        None => usual(),
        Some("comma") => Separator::Comma,
        Some("space") => Separator::Space,
        Some("both") => Separator::CommaOrSpace,
        Some(_) => return Err("write `comma`, `space` or `both` after the `=`".to_owned()),
    };
    Ok(TagField { name, separator })
}

/// The name of a field, perhaps with `*` at its end.
pub(super) fn field_pattern(text: &str) -> Result<String, String> {
    match name_pattern(text)?.strip_suffix('*') {
        Some("") => Ok(text.to_owned()),
        Some(beginning) => field_name(beginning).map(|_| text.to_owned()),
        None => field_name(text),
    }
}

fn removable_field(text: &str) -> Result<String, String> {
    const NEEDED: [&str; 5] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "via",
    ];
    let name = field_pattern(text)?;
    if NEEDED.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(
            "no request goes to the origin without it, and what it says is not the client's"
                .to_owned(),
        );
    }
    Ok(name)
}

fn keepable_field(text: &str) -> Result<String, String> {
    let name = field_pattern(text)?;
    if name == "*" {
        return Err(
            "name the fields: with all of them, clients could say anything about themselves"
                .to_owned(),
        );
    }
    if name.ends_with('*') {
        return Ok(name);
    }
    match fate(name.as_bytes(), false, &RequestRules::default()) {
        Fate::Removed if only_from_trusted_peers(name.as_bytes()) => Ok(name),
        Fate::Travels => Err("the origin gets it anyway".to_owned()),
        Fate::Rewritten | Fate::Removed => Err(
            "Microcache writes it for the connection it is sent on; a proxy that is to be believed is named in `trusted_proxies`"
                .to_owned(),
        ),
    }
}

/// A language tag, as far as its letters go (RFC 5646 §2.1).
fn language(text: &str) -> Result<String, String> {
    let is_subtag = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if text.split('-').all(is_subtag) {
        Ok(text.to_owned())
    } else {
        Err("write a language such as \"en\" or \"pt-BR\"".to_owned())
    }
}

/// A name, perhaps with `*` at its end.
pub(super) fn name_pattern(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() {
        return Err("the name is empty".to_owned());
    }
    if name.contains('*') {
        return Err("a `*` may stand at the end only".to_owned());
    }
    Ok(text.to_owned())
}

/// The query rule of a key, while its two halves are read.
#[derive(Debug, Default)]
pub(in crate::config) struct QueryDraft {
    pub(super) ignore: Vec<String>,
    pub(super) only: Option<Vec<String>>,
    pub(super) whole: bool,
}

impl QueryDraft {
    pub(super) fn finish(self) -> Query {
        match self.only {
            Some(names) => Query::Only(names.into_iter().collect()),
            None if self.ignore.is_empty() => Query::All,
            None => Query::Except(self.ignore.into_iter().collect()),
        }
    }
}
