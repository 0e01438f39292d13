//! Options of caching, at the top for all routes or in one route.

use std::ops::RangeInclusive;

use microcache_policy::patterns::takes;
use microcache_policy::rules::{KeyRules, Reload, SetCookie};
use microcache_policy::{
    FieldForwarding, FieldName, Millis, RequestRules, Separator, TagField, field_forwarding,
    only_from_trusted_peers,
};

use super::super::condition::Condition;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Duration, List, Number, Size, Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::super::route::{EarlyHints, Watching};
use super::LIFETIME;
use super::key::KEY;
use super::names::{field_name, field_pattern, name_pattern};
use super::route::RouteDraft;
use super::user_context::set_user_context;

const OBJECT: RangeInclusive<u64> = 1..=1 << 44;

/// Options of caching.
pub(in crate::config) const RULES: &[Opt<RouteDraft>] = &[
    opt("ttl", Duration, "1s")
        .help("Freshness lifetime (TTL) of responses without one from the origin")
        .more(
            "Cache-Control and Expires of the origin take precedence. `\"0s\"` stores only what \
             the origin explicitly allows.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.ttl, v.millis(&LIFETIME))),
    opt("stale_while_revalidate", Duration, "10s")
        .help("Stale window: time a stale response is served while it is revalidated")
        .more(
            "One background request revalidates it. Default for responses without the directive \
             of that name.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.stale_while_revalidate, v.millis(&LIFETIME))),
    opt("stale_if_error", Duration, "1d")
        .help("Stale window on errors: time a stale response is served if the origin fails")
        .more(
            "On error responses, timeouts and lost connections. Default for responses without the \
             directive of that name.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.stale_if_error, v.millis(&LIFETIME))),
    opt("forced_ttl", Text("DURATION|origin"), "origin")
        .example("5m")
        .help("Freshness lifetime (TTL) that overrides the origin's, or `origin`")
        .more(
            "It changes how long, not whether a response is stored: `private`, `no-store`, \
             Set-Cookie and the other safety rules still apply.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.forced_ttl, lifetime_or(v, "origin"))),
    opt("anonymous_ttl", Text("DURATION|off"), "off")
        .example("5s")
        .help("Lifetime of pages marked `private` or `no-cache` for visitors without cookies")
        .more(
            "For applications that mark every page so, or set a cookie with it, such as stock Rails, Laravel and \
             Django. It applies to requests without credentials and without a query (but `key.query.only`), and never \
             to `no-store` and to pages with a token of a form. The stored page has no cookies. Set it where all such \
             visitors get the same page. See [visitors without cookies](anonymous.md).",
        )
        .sets(|r, v, m| {
            m.put(&mut r.route.rules.anonymous_ttl, lifetime_or(v, "off"));
        }),
    opt("status_ttl", Table("status codes and durations"), "{}")
        .example(r#"{ 404 = "10s", 503 = "1s" }"#)
        .help("Freshness lifetime (TTL) per status code")
        .more(
            "A listed status may be stored even if it otherwise is not. It replaces `anonymous_ttl` for this status \
             too.",
        )
        .sets(set_status_ttl),
    opt("heuristic", Number, "0")
        .example("10")
        .help("Heuristic freshness: percent of the response's age since Last-Modified")
        .more(
            "In place of `ttl`, for responses with Last-Modified (RFC 9111 §4.2.2). 0 disables \
             it.",
        )
        .sets(|r, v, m| {
            let percent = v
                .count(0..=100)
                .map(|n| u8::try_from(n).ok().filter(|n| *n > 0));
            m.put(&mut r.route.rules.heuristic, percent);
        }),
    opt("targeted", List("FIELD"), r#"["CDN-Cache-Control"]"#)
        .example(r#"["Microcache-Cache-Control", "CDN-Cache-Control"]"#)
        .help("Response fields that override Cache-Control here, highest priority first")
        .more("A lifetime in one of them makes a response public, also for requests with cookies. See RFC 9213.")
        .sets(|r, v, m| r.route.rules.targeted = v.each(m, |item| item.parse(field_name))),
    opt("tag_fields", List("FIELD[=SEPARATOR]"), r#"["Cache-Tag=comma", "Surrogate-Key=space", "xkey=both"]"#)
        .example(r#"["X-Magento-Tags=comma"]"#)
        .help("Response fields with tags for purging")
        .more(
            "The separator of the tags is `comma`, `space` or `both`; without it, the usual one \
             of that field, which is `comma` for most. `Cache-Groups` (RFC 9875) is always read.",
        )
        .sets(|r, v, m| r.route.rules.tag_fields = v.each(m, |item| item.parse(tag_field))),
    opt("set_cookie", Text("refuse|strip|store"), "refuse")
        .example("strip")
        .help("Handling of responses with Set-Cookie: `refuse`, `strip` or `store`")
        .more(
            "`refuse` does not store the response, `strip` stores it without the cookie, `store` \
             gives the cookie to every visitor.",
        )
        .sets(set_set_cookie),
    opt("ignore_cookies", List("NAME"), "[]")
        .example(r#"["theme", "consent_*"]"#)
        .help("Further cookies to ignore when deciding whether a request is personal")
        .more(
            "In addition to the well-known ones. A `*` at the end matches any suffix. They \
             are left out of shared fetches, so pages must not depend on them.",
        )
        .sets(set_ignore_cookies),
    opt("remove_cookies", List("NAME"), "[]")
        .example(r#"["_ga", "_gid", "theme_*"]"#)
        .help("Cookies removed from requests before they reach the origin")
        .more(
            "They never make a request personal, since no page can depend on them. `*` alone \
             removes all; a `*` at the end of a name matches any suffix.",
        )
        .sets(|r, v, m| {
            let names = v.each(m, |item| item.parse(name_pattern));
            r.route.rules.request.removed_cookies = names.into_iter().collect();
        }),
    opt("remove_headers", List("FIELD"), "[]")
        .example(r#"["X-Experiment", "Accept-Language"]"#)
        .help("Header fields removed from requests before they reach the origin")
        .more(
            "No page can depend on them. A `*` at the end matches any suffix. `X-Forwarded-For` \
             and other fields that Microcache adds can be removed too.",
        )
        .sets(|r, v, m| {
            let names = v.each(m, |item| item.parse(removable_field));
            r.route.rules.request.removed_fields = names.into_iter().collect();
        }),
    opt("keep_headers", List("FIELD"), "[]")
        .example(r#"["api_key"]"#)
        .help("Header fields forwarded to the origin though removed by default")
        .more(
            "Fields that only a proxy should set, such as `X-Original-URL`, and names with \
             characters other than letters, digits and hyphens. They become part of the cache \
             key, except addresses. A `*` at the end matches any suffix.",
        )
        .sets(|r, v, m| {
            let names = v.each(m, |item| item.parse(keepable_field));
            r.route.rules.request.kept_fields = names.into_iter().collect();
        }),
    opt("forward_fields", List("FIELD"), "[]")
        .example(r#"["X-Request-Source"]"#)
        .help("Unknown header fields forwarded to the origin on shared fetches too")
        .more(
            "A fetch whose response is shared leaves out fields that are neither well known, nor \
             in `key.headers`, nor in the `Vary` of the URL. These are forwarded with the value \
             of the client that causes the fetch: a page must not depend on them, or that client \
             decides the content for all others. `key.headers` is nearly always the better \
             choice. A `*` at the end matches any suffix.",
        )
        .sets(set_forward_fields),
    opt("ignore_vary", List("FIELD"), "[]")
        .example(r#"["User-Agent"]"#)
        .help("Header fields to ignore in `Vary`")
        .more(
            "Variants that differ by these fields only become one: every client gets the first. \
             For backends that send `Vary: User-Agent` with identical pages.",
        )
        .sets(|r, v, m| r.route.rules.vary_ignored = v.each(m, |item| item.parse(field_name))),
    opt("languages", List("LANGUAGE"), "[]")
        .example(r#"["en", "de", "pt-BR"]"#)
        .help("Site languages; `Accept-Language` is normalised to one of them")
        .more(
            "The first preference of the browser that matches one of them (`de-CH` matches `de`) \
             is used for the key and sent to the origin. Without this option every different \
             order of preference is another variant of a page that varies on Accept-Language.",
        )
        .sets(|r, v, m| r.route.rules.languages = v.each(m, |item| item.parse(language))),
    opt("reload", Text("ignore|honour"), "ignore")
        .help("Effect of a browser's reload: `ignore`, or `honour` to revalidate")
        .sets(|r, v, m| m.put(&mut r.route.rules.reload, v.choice(RELOAD))),
    optional("max_object", Size, "8MiB")
        .unset("1/16 of `memory`")
        .help("Maximum size of a body stored in memory; larger ones are streamed")
        .more("At most a quarter of `memory`.")
        .sets(|r, v, m| m.put(&mut r.route.max_object, v.size(&OBJECT).map(Some))),
    opt("bypass", List("CONDITION"), "[]")
        .example(r#"["cookie:preview", "header:X-Debug=1", "query:draft"]"#)
        .help("Conditions under which requests bypass the cache")
        .more(
            "`header:`, `cookie:` or `query:`, a name, and optionally `=` and a value. One \
             matching condition is enough. A `*` at the end of a name matches any suffix, in a \
             value any run of characters: `cookie:wordpress_logged_in_*`, \
             `header:User-Agent=*bot*`. Values are compared with case.",
        )
        .sets(|r, v, m| r.route.bypass = v.each(m, |item| item.parse(Condition::parse))),
    opt("pass", Switch, "false")
        .help("Caching off: every request goes to the origin, nothing is stored")
        .sets(|r, v, m| m.put(&mut r.route.pass, v.switch())),
    opt("collapse", Switch, "true")
        .help("Request coalescing: one origin fetch for simultaneous requests")
        .more(
            "With `false` every miss is a request to the origin, as in caches without coalescing. \
             Meant for comparisons.",
        )
        .sets(|r, v, m| m.put(&mut r.route.collapse, v.switch())),
    opt("early_hints", Switch, "false")
        .example("true")
        .help("Early hints (103): links of the stored page, sent while the origin works")
        .more(
            "For navigations over HTTP/2 that are not answered from the cache, with a session cookie too: `Link` \
             with `preload`, `modulepreload` or `preconnect`, at most 1 KiB, from the page as stored for visitors \
             without credentials. See [early hints](early-hints.md).",
        )
        .sets(|r, v, m| m.put(&mut r.route.early_hints, v.switch().map(EarlyHints::from))),
    opt("watch", Text("off|stored|refresh"), "off")
        .example("refresh")
        .help("Change notifications for pages: `refresh`, `stored` or `off`")
        .more(
            "Subscribers of a page are notified when it changes. `stored`: when another version \
             of it is stored, or it is purged. `refresh`: it is also revalidated whenever it is \
             not fresh, at most once per second, as long as it has subscribers. Notifications are \
             about the response to a request without cookies. See [live](live.md) for the line of \
             HTML that makes a page update itself.",
        )
        .sets(|r, v, m| {
            m.put(&mut r.route.watch, v.choice(&[ ("off", Watching::Off), ("stored", Watching::Stored), ("refresh", Watching::Refresh), ]));
        }),
    optional("key", Table("parts of the cache key"), r#"{ query = { ignore = ["utm_*", "fbclid"] }, headers = ["X-Country"], cookies = ["currency"] }"#)
        .unset("host, path and whole query")
        .help("Cache key in addition to host and path: query, header fields, cookies")
        .more("The `key` of a route replaces the one at the top as a whole.")
        .sets(|r, v, m| {
            if let Some(table) = m.ok(v.table()) {
                let mut key = KeyRules::default();
                table.apply(KEY, &mut key, m);
                table.refuse_rest_inside("key", m);
                r.route.rules.key = key;
            }
        }),
    optional(
        "user_context",
        Table("url, cookies and ttl"),
        r#"{ url = "/_fos_user_context_hash", cookies = ["PHPSESSID"], ttl = "10m" }"#,
    )
    .unset("each user has pages of their own")
    .help("One page for all users of a role, by a hash of the application")
    .more(
        "The hash is part of the key, and is sent to the application as `X-User-Context-Hash`. Pages that permit \
         sharing are shared by users with the same hash. `\"off\"` on a route overrides the top. See \
         [user context](user-context.md).",
    )
    .sets(set_user_context),
];

const SET_COOKIE: &[(&str, SetCookie)] = &[
    ("refuse", SetCookie::Refuse),
    ("strip", SetCookie::Strip),
    ("store", SetCookie::Store),
];

const RELOAD: &[(&str, Reload)] = &[("ignore", Reload::Ignore), ("honour", Reload::Honour)];

/// Reads a lifetime, or the word for none.
fn lifetime_or(value: &Value, none: &str) -> Result<Option<Millis>, Mistake> {
    if value.text().is_ok_and(|text| text == none) {
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
                    format!("`{}` is not a status that can be stored", key.name),
                )
                .remedy("write one from 200 to 599, except 206 and 304"),
            ),
        }
    }
    draft.route.rules.status_ttl = ttls;
}

fn set_set_cookie(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    mistakes.put(&mut draft.route.rules.set_cookie, value.choice(SET_COOKIE));
    if draft.route.rules.set_cookie == SetCookie::Store {
        let what = "\"store\" gives the cookie of one visitor to all others";
        mistakes.warn(Mistake::new(&value.place, what).remedy(
            "with a session cookie they share a login: use \"strip\" to store the page without it",
        ));
    }
}

fn set_ignore_cookies(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let own = value.each(mistakes, |item| item.parse(name_pattern));
    for item in value.items() {
        if let Ok(pattern) = item.text()
            && let Some(name) = personal_taken_by(pattern)
        {
            let what =
                format!("`{pattern}` ignores a cookie that identifies visitors, such as `{name}`");
            mistakes.warn(Mistake::new(&item.place, what).remedy(
                "a page for one visitor may be served to all: list only cookies that pages do not depend on, or add bypass = \"cookie:NAME\"",
            ));
        }
    }
    draft.route.rules.cookies_ignored = own.into_iter().collect();
}

fn set_forward_fields(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let names = value.each(mistakes, |item| item.parse(field_pattern));
    if let (Some(name), Some(item)) = (names.first(), value.items().first()) {
        let what = format!(
            "`{name}` is sent with one client's value: a page that depends on it is stored for all clients"
        );
        mistakes.warn(
            Mistake::new(&item.place, what)
                .remedy("add it to `key.headers`, so that each value has its own entry"),
        );
    }
    draft.route.rules.request.forwarded_fields = names.into_iter().collect();
}

/// Cookies by which well-known programs identify visitors: sessions, logins, passwords of pages, carts, and names
/// of commenters.
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

/// Returns a cookie that identifies visitors and that a pattern matches.
fn personal_taken_by(pattern: &str) -> Option<&'static str> {
    let takes = |name: &&str| takes(pattern.as_bytes(), name.as_bytes());
    PERSONAL.into_iter().find(takes)
}

/// Parses a field with tags, and their separator.
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
            "every request to the origin needs it, and its value is not the client's".to_owned(),
        );
    }
    Ok(name)
}

fn keepable_field(text: &str) -> Result<String, String> {
    let name = field_pattern(text)?;
    if name == "*" {
        return Err(
            "list the fields: with all of them, clients could forge any identity".to_owned(),
        );
    }
    if name.ends_with('*') {
        return Ok(name);
    }
    let known = FieldName::of(name.as_bytes());
    match field_forwarding(known, false, &RequestRules::default()) {
        FieldForwarding::Removed if only_from_trusted_peers(known) => Ok(name),
        FieldForwarding::Forwarded => Err("it is forwarded anyway".to_owned()),
        FieldForwarding::Rewritten | FieldForwarding::Removed => Err(
            "Microcache writes it for each connection; add trusted proxies to `trusted_proxies`"
                .to_owned(),
        ),
    }
}

/// Parses a language tag, as far as its characters go (RFC 5646 §2.1).
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
