//! Options of access, at the top for all routes or in one route.

use std::sync::Arc;

use super::super::access::block;
use super::super::basic_auth::BasicAuth;
use super::super::cidr::Cidr;
use super::super::client_certificate::{CertificateRule, certificate_name};
use super::super::forward_auth::{AuthUrl, ForwardAuth};
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{self, Duration, List, Number, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::{Table, Value};
use super::headers::fixed_by_request;
use super::names::{field_name, name_pattern};
use super::route::RouteDraft;
use super::{LIFETIME, WAIT};

/// Options of access.
pub(in crate::config) const ACCESS: &[Opt<RouteDraft>] = &[
    optional(
        "allow",
        List("ADDRESS|BLOCK|all"),
        r#"["192.0.2.0/24", "2001:db8::/32"]"#,
    )
    .unset("all that are not denied")
    .help("Addresses or blocks of clients that are admitted; all others get 403")
    .more(
        "Behind a proxy in `trusted_proxies`, the client that it names in X-Forwarded-For. A route \
         with `allow` or `deny` inherits neither from the top. See [access](access.md).",
    )
    .sets(|r, v, m| r.route.addresses.allow = blocks(v, m)),
    optional("deny", List("ADDRESS|BLOCK|all"), r#"["203.0.113.0/24"]"#)
        .unset("no client")
        .help("Addresses or blocks of clients that get 403, even if `allow` has them")
        .more("`all` closes the route.")
        .sets(|r, v, m| r.route.addresses.deny = blocks(v, m)),
    optional(
        "client_certificate",
        List("required|off|NAME"),
        r#"["CN=ann", "DNS=*.example.org"]"#,
    )
    .unset("`off`")
    .help("Client certificates that are admitted; all other clients get 403")
    .more(
        "`required` admits those of every authority in `client_ca`. Names are attributes of the \
         subject (`CN=`, `OU=`, `O=`, …) or alternative names (`DNS=`, `email=`, `URI=`), of which \
         one must match; a `*` matches any text. See \
         [access](access.md#by-client-certificate).",
    )
    .sets(set_client_certificate),
    optional(
        "basic_auth",
        Form::Table("file and realm"),
        r#"{ file = "/etc/microcache/htpasswd", realm = "Staging" }"#,
    )
    .unset("no authentication")
    .help("Users with passwords (Basic authentication); all others get 401")
    .more(
        "`\"off\"` on a route overrides the top. Pages are shared by the users that are let in: the \
         password does not reach the application. See [access](access.md#by-password).",
    )
    .sets(set_basic_auth),
    optional(
        "forward_auth",
        Form::Table("url and what is copied"),
        r#"{ url = "http://127.0.0.1:9091/verify", copy_headers = ["Remote-User"] }"#,
    )
    .unset("no authentication")
    .help("Server that decides about each request, as Authelia or oauth2-proxy")
    .more(
        "A response with 2xx admits the request; 401, 403 and redirects go to the client; anything \
         else is 503. `\"off\"` on a route overrides the top; a route with this option does not \
         inherit `basic_auth`, and the reverse. See \
         [access](access.md#by-another-server).",
    )
    .sets(set_forward_auth),
];

/// Options of authentication by another server.
pub(in crate::config) const FORWARD_AUTH: &[Opt<ForwardAuth>] = &[
    optional("url", Text("URL"), "http://127.0.0.1:9091/verify")
        .unset("required")
        .help("URL that is requested with the client's cookies and `Authorization`")
        .sets(|a, v, m| m.put(&mut a.url, v.parse(AuthUrl::parse).map(Some))),
    optional("copy_headers", List("FIELD"), r#"["Remote-User", "Remote-Groups"]"#)
        .help("Fields of its response that are set on the request to the application")
        .more(
            "The client's own fields of these names are removed. Shared fetches carry none of them.",
        )
        .sets(|a, v, m| a.copied = v.each(m, |item| item.parse(copied))),
    optional("session_cookie", List("COOKIE"), r#"["authelia_session"]"#)
        .help("Cookies that are for this server only")
        .more(
            "They do not reach the application and do not make a request personal: all clients that \
             are let in share what is stored. A `*` at the end matches any suffix.",
        )
        .sets(|a, v, m| a.session_cookies = v.each(m, |item| item.parse(name_pattern))),
    opt("timeout", Duration, "2s")
        .help("Maximum time of a decision; after it 503")
        .sets(|a, v, m| m.put(&mut a.timeout, v.duration(&WAIT))),
    opt("cache", Duration, "0s")
        .example("5s")
        .help("Time for which an admission is kept for identical requests")
        .more("A logout takes effect after that time. `0s` asks about every request.")
        .sets(|a, v, m| m.put(&mut a.kept_for, v.duration(&LIFETIME))),
    opt("max_concurrent", Number, "64")
        .help("Maximum concurrent requests to this server")
        .more("Four times as many wait; beyond that the answer is 503.")
        .sets(|a, v, m| m.put(&mut a.max_concurrent, v.count(1..=10_000))),
];

fn set_forward_auth(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    if value.text() == Ok("off") {
        draft.route.forward_auth = None;
        return;
    }
    let url = "http://127.0.0.1:9091/verify";
    if let Some(auth) = read_forward_auth(("forward_auth", url), value, mistakes) {
        draft.route.forward_auth = Some(auth);
        draft.route.basic_auth = None;
    }
}

/// Reads the settings of an authentication server from the option with this name, which needs a URL as this one.
pub(super) fn read_forward_auth(
    (option, example): (&str, &str),
    value: &Value,
    mistakes: &mut Mistakes,
) -> Option<ForwardAuth> {
    let table = mistakes.ok(value.table())?;
    let mut auth = ForwardAuth::new(value.place.clone());
    table.apply(FORWARD_AUTH, &mut auth, mistakes);
    table.refuse_rest_inside(option, mistakes);
    if value.entry("url").is_none() {
        let what = format!("`{option}` has no `url`");
        let remedy = format!("add url = \"{example}\"");
        mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
    }
    Some(auth)
}

/// Parses the name of a field that an authentication server may set.
fn copied(text: &str) -> Result<String, String> {
    let name = field_name(text)?;
    match fixed_by_request(&name) {
        Some(why) => Err(why.to_owned()),
        None => Ok(name),
    }
}

/// Options of Basic authentication.
pub(in crate::config) const BASIC_AUTH: &[Opt<BasicAuth>] = &[
    optional("file", Text("FILE"), "/etc/microcache/htpasswd")
        .help("File of users and bcrypt hashes, as `htpasswd -B` writes it")
        .more("A reload reads it again.")
        .sets(|b, v, m| m.put(&mut b.file, v.file().map(Some))),
    optional("realm", Text("NAME"), "Staging")
        .unset("`Restricted`")
        .help("Name of the protected pages, which browsers may show")
        .sets(|b, v, m| m.put(&mut b.realm, v.parse(realm))),
];

/// Notes two kinds of authentication in one table: which of them counts would be a guess.
pub(in crate::config) fn check_authentication(table: &Table<'_>, mistakes: &mut Mistakes) {
    let is_on = |name| table.get(name).filter(|value| value.table().is_ok());
    if let (Some(_), Some(value)) = (is_on("basic_auth"), is_on("forward_auth")) {
        let what = "`basic_auth` and `forward_auth` exclude each other";
        mistakes.note(Mistake::new(&value.place, what).remedy("remove one of them"));
    }
}

fn set_basic_auth(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    if value.text() == Ok("off") {
        draft.route.basic_auth = None;
        return;
    }
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut basic = BasicAuth::new();
    table.apply(BASIC_AUTH, &mut basic, mistakes);
    table.refuse_rest_inside("basic_auth", mistakes);
    if value.entry("file").is_none() {
        let remedy = "add file = \"/etc/microcache/htpasswd\"";
        mistakes.note(Mistake::new(&value.place, "`basic_auth` has no `file`").remedy(remedy));
    }
    draft.route.basic_auth = Some(basic);
    draft.route.forward_auth = None;
}

fn realm(text: &str) -> Result<Arc<str>, String> {
    let is_plain = |c: char| (' '..='~').contains(&c) && !"\"\\".contains(c);
    if text.chars().all(is_plain) {
        Ok(text.into())
    } else {
        Err("use ASCII without quotes and backslashes".to_owned())
    }
}

fn set_client_certificate(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    draft.route.client_certificate = match value.items() {
        [one] if one.text() == Ok("off") => CertificateRule::Off,
        [one] if one.text() == Ok("required") => CertificateRule::Any,
        [] => {
            let remedy = "write client_certificate = \"required\" to admit every certificate";
            mistakes.note(Mistake::new(&value.place, "the list is empty").remedy(remedy));
            return;
        }
        _ => CertificateRule::Named(value.each(mistakes, |item| item.parse(certificate_name))),
    };
}

/// Notes a required certificate that no client is asked for.
pub(in crate::config) fn check_client_certificate(
    draft: &RouteDraft,
    has_authorities: bool,
    table: &Table<'_>,
    mistakes: &mut Mistakes,
) {
    if let Some(value) = table.get("client_certificate")
        && !draft.route.client_certificate.is_off()
        && !has_authorities
    {
        let what = "`client_certificate` needs the authorities that issue them";
        let remedy = "add client_ca = \"/etc/microcache/clients.pem\" at the top";
        mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
    }
}

fn blocks(value: &Value, mistakes: &mut Mistakes) -> Vec<Cidr> {
    if value.items().is_empty() {
        mistakes.note(
            Mistake::new(&value.place, "the list is empty")
                .remedy("write allow = \"all\" to admit every client"),
        );
    }
    value.each(mistakes, |item| item.parse(block))
}
