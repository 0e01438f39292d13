//! Options of routes that answer themselves: redirects and fixed responses.

use std::path::PathBuf;

use bytes::Bytes;
use http::HeaderValue;
use microcache_policy::url_template::UrlTemplate;

use super::super::fixed_response::FixedResponse;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Number, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::place::Place;
use super::super::raw::Value;
use super::super::redirect::Redirect;
use super::super::route::GoesTo;
use super::route::{RouteDraft, exclusive};
use crate::files::media_type;

/// Options of a route that answers itself.
pub(in crate::config) const ANSWERS: &[Opt<RouteDraft>] = &[
    optional(
        "redirect",
        Table("a target and a status"),
        r#"{ to = "https://example.com{path}", status = 301 }"#,
    )
    .help("Redirect of the requests, in place of an upstream group")
    .sets(set_redirect),
    optional(
        "respond",
        Table("a status and a body"),
        r#"{ status = 410, body = "Gone.\n" }"#,
    )
    .help("Response to the requests, in place of an upstream group")
    .more(
        "A route that answers with 4xx guards its paths: a request whose path could be read as one \
         of them (`/%2eenv`) gets 400.",
    )
    .sets(set_respond),
];

/// Options of `redirect`.
pub(in crate::config) const REDIRECT: &[Opt<RedirectDraft>] = &[
    optional("to", Text("URL"), "https://example.com{path}")
        .help("Target: an absolute URL or path, with placeholders")
        .more(
            "`{scheme}`, `{host}` (without port), `{path}` and `{query}` (with its `?`) stand for \
             those of the request, `{1}` to `{9}` for the text that the stars of `match.path` \
             matched, all raw. The query is appended unless the target has a `?`; one at its end \
             drops the query. No part of the path can stand in the host.",
        )
        .sets(|r, v, m| r.to = m.ok(v.parse(UrlTemplate::location))),
    opt("status", Number, "302")
        .example("301")
        .help("Status: 301, 302, 303, 307 or 308")
        .more(
            "As in Caddy and nginx, a redirect is temporary unless it says otherwise: browsers \
             keep 301 and 308 for good. 307 and 308 keep the method and the body.",
        )
        .sets(|r, v, m| m.put(&mut r.status, redirect_status(v))),
];

/// Options of `respond`.
pub(in crate::config) const RESPOND: &[Opt<RespondDraft>] = &[
    opt("status", Number, "200")
        .example("403")
        .help("Status code")
        .sets(|r, v, m| m.put(&mut r.status, response_status(v))),
    optional("body", Text("TEXT"), r"Gone.\n")
        .unset("empty")
        .help("Body")
        .sets(|r, v, m| r.body = m.ok(v.text()).map(|text| text.to_owned().into())),
    optional("file", Text("FILE"), "/etc/microcache/robots.txt")
        .help("File with the body, read at the start and by a reload")
        .more("At most 1 MiB. Directories of files are routes with `root`.")
        .sets(|r, v, m| {
            r.file = m.ok(v.file());
            if r.body.is_some() {
                m.note(exclusive(&v.place, "file", "body"));
            }
        }),
    optional("content_type", Text("TYPE"), "application/json")
        .unset("by the suffix of `file`, else text/plain; charset=utf-8")
        .help("Content-Type of the body")
        .sets(|r, v, m| r.content_type = m.ok(v.parse(field_value))),
    opt("cache_control", Text("DIRECTIVES"), "no-store")
        .example("max-age=3600")
        .help("Cache-Control for browsers and caches in front")
        .sets(|r, v, m| m.put(&mut r.cache_control, v.parse(field_value))),
];

/// A redirect while it is read.
#[derive(Debug)]
pub(in crate::config) struct RedirectDraft {
    to: Option<UrlTemplate>,
    status: u16,
}

/// A fixed response while it is read.
#[derive(Debug)]
pub(in crate::config) struct RespondDraft {
    status: u16,
    body: Option<Bytes>,
    file: Option<(PathBuf, Place)>,
    content_type: Option<String>,
    cache_control: String,
}

/// Reads the redirect of a route.
fn set_redirect(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut redirect = RedirectDraft {
        to: None,
        status: 302,
    };
    table.apply(REDIRECT, &mut redirect, mistakes);
    let has_target = table.get("to").is_some();
    table.refuse_rest_inside("redirect", mistakes);
    let RedirectDraft { to, status } = redirect;
    if let Some(to) = to {
        draft.set_answer(
            "redirect",
            GoesTo::Redirect(Redirect { to, status }),
            value,
            mistakes,
        );
    } else if !has_target {
        let what = "`redirect` has no target";
        mistakes.note(
            Mistake::new(&value.place, what).remedy("add to = \"https://example.com{path}\""),
        );
    }
}

/// Reads the response of a route.
fn set_respond(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut respond = RespondDraft {
        status: 200,
        body: None,
        file: None,
        content_type: None,
        cache_control: "no-store".to_owned(),
    };
    table.apply(RESPOND, &mut respond, mistakes);
    table.refuse_rest_inside("respond", mistakes);
    let RespondDraft {
        status,
        body,
        file,
        content_type,
        cache_control,
    } = respond;
    let has_body = body.is_some() || file.is_some();
    if matches!(status, 204 | 304) && has_body {
        let what = format!("a response with status {status} has no body");
        mistakes.note(
            Mistake::new(&value.place, what)
                .remedy("remove `body` or `file`, or change the status"),
        );
    }
    let usual_type = || match &file {
        Some((path, _)) => media_type(path),
        None if has_body => "text/plain; charset=utf-8".to_owned(),
        None => String::new(),
    };
    let content_type = content_type.unwrap_or_else(usual_type);
    let response = FixedResponse {
        status,
        body: body.unwrap_or_default(),
        file,
        content_type,
        cache_control,
    };
    draft.set_answer("respond", GoesTo::Respond(response), value, mistakes);
}

fn redirect_status(value: &Value) -> Result<u16, Mistake> {
    let status = value.count(100..=599)? as u16;
    let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
    is_redirect.then_some(status).ok_or_else(|| {
        Mistake::new(&value.place, format!("{status} is no redirect"))
            .remedy("write 301, 302, 303, 307 or 308")
    })
}

fn response_status(value: &Value) -> Result<u16, Mistake> {
    let status = value.count(200..=599)? as u16;
    let remedy = match status {
        206 => "a part of a response needs a request for it: write 200",
        301 | 302 | 303 | 307 | 308 => "write redirect = { to = \"https://example.com{path}\" }",
        _ => return Ok(status),
    };
    Err(Mistake::new(&value.place, format!("{status} cannot be a fixed response")).remedy(remedy))
}

fn field_value(text: &str) -> Result<String, String> {
    match HeaderValue::from_str(text) {
        Ok(value) if value.to_str().is_ok() && text.trim() == text && !text.is_empty() => {
            Ok(text.to_owned())
        }
        _ => Err("a value of a field is visible ASCII, without spaces at its ends".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Input};

    fn read(route: &str) -> Result<GoesTo, String> {
        let text = format!("origin = \"http://o:3000\"\n[[routes]]\n{route}\n");
        let input = Input {
            file: Some(("f", &text)),
            ..Input::default()
        };
        let config = Config::read(input).map_err(|report| report.to_string())?;
        Ok(config.routes[0].goes_to.clone())
    }

    #[test]
    fn a_redirect_is_temporary_unless_it_says_otherwise() {
        for (route, status) in [
            (r#"redirect = { to = "https://a.example{path}" }"#, 302),
            (
                r#"redirect = { to = "https://a.example{path}", status = 301 }"#,
                301,
            ),
        ] {
            let Ok(GoesTo::Redirect(redirect)) = read(route) else {
                panic!("{route}");
            };
            assert_eq!(redirect.status, status);
        }
    }

    #[test]
    fn a_body_has_the_type_of_its_source() {
        for (route, body, content_type) in [
            ("respond = { status = 403 }", "", ""),
            (
                r#"respond = { body = "a" }"#,
                "a",
                "text/plain; charset=utf-8",
            ),
            (
                r#"respond = { body = "<p>", content_type = "text/html" }"#,
                "<p>",
                "text/html",
            ),
            (
                r#"respond = { file = "/a/b.json" }"#,
                "",
                "application/json",
            ),
            (
                r#"respond = { file = "/a/robots.txt" }"#,
                "",
                "text/plain; charset=utf-8",
            ),
        ] {
            let Ok(GoesTo::Respond(response)) = read(route) else {
                panic!("{route}");
            };
            assert_eq!(
                (&response.body[..], &*response.content_type),
                (body.as_bytes(), content_type)
            );
            assert_eq!(response.cache_control, "no-store");
        }
    }

    #[test]
    fn mistakes_have_a_remedy() {
        for (route, says) in [
            ("redirect = {}", "`redirect` has no target"),
            (
                r#"redirect = { to = "/a", status = 200 }"#,
                "200 is no redirect",
            ),
            (
                r#"redirect = { to = "https://{1}" }"#,
                "wherever a link says",
            ),
            (r#"redirect = { to = "/{1}" }"#, "`{1}` stands for no star"),
            (
                "match = { path = [\"/a/*\", \"/b\"] }\nredirect = { to = \"/c/{1}\" }",
                "`{1}` stands for no star",
            ),
            (
                "redirect = { to = \"/a\" }\nrespond = { status = 404 }",
                "`respond` and `redirect` exclude each other",
            ),
            (
                "upstream = \"origin\"\nrespond = { status = 404 }",
                "`upstream` and `respond` exclude each other",
            ),
            (
                "root = \"/\"\nrespond = { status = 404 }",
                "`root` and `respond` exclude each other",
            ),
            (
                "ttl = \"1s\"\nrespond = { status = 404 }",
                "`ttl` has no effect with `respond`",
            ),
            (
                "respond = { status = 302 }",
                "302 cannot be a fixed response",
            ),
            (
                "respond = { status = 101 }",
                "expected a number from 200 to 599",
            ),
            (
                r#"respond = { status = 204, body = "a" }"#,
                "status 204 has no body",
            ),
            (
                r#"respond = { body = "a", file = "/dev/null" }"#,
                "exclude each other",
            ),
            (r#"respond = { content_type = "a\nb" }"#, "visible ASCII"),
            ("respond = { stat = 404 }", "unknown option `stat`"),
        ] {
            let report = read(route).expect_err(route);
            assert!(report.contains(says), "{route}: {report}");
        }
    }

    #[test]
    fn a_server_that_only_answers_itself_needs_no_origin() {
        let input = Input {
            file: Some((
                "f",
                "routes = [{ redirect = { to = \"https://a.example{path}\" } }]",
            )),
            ..Input::default()
        };
        assert!(Config::read(input).is_ok());
    }
}
