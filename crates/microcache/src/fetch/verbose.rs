//! Prints the heads of requests and responses, as `curl -v`. Secrets are left out, because terminals and
//! build logs are copied.

use std::fmt::Write;

use http::header::{
    AUTHORIZATION, COOKIE, HeaderName, HeaderValue, PROXY_AUTHORIZATION, SET_COOKIE,
};
use http::{HeaderMap, Version};
use microcache_client::reqwest::Exchange;
use microcache_policy::is_identity;
use reqwest::{Body, Request, Response, Url};

use crate::tell;

const HIDDEN: &str = "[hidden]";

/// Prints one half of an exchange with a server.
pub(super) fn show(exchange: &Exchange<'_>) {
    match exchange {
        Exchange::Request(request) => tell(&request_lines(request)),
        Exchange::Response(response) => tell(&response_lines(response)),
        _ => {}
    }
}

/// Formats the head of a request. Over https the version of HTTP is negotiated later.
fn request_lines(request: &Request) -> String {
    let url = request.url();
    let version = if url.scheme() == "http" {
        " HTTP/1.1"
    } else {
        ""
    };
    let target = target(url);
    let mut lines = format!("> {} {target}{version}\n", request.method());
    let authority = authority(url);
    if !request.headers().contains_key(http::header::HOST) {
        let _ = writeln!(lines, "> host: {authority}");
    }
    push_fields(&mut lines, '>', request.headers());
    let body = request.body().and_then(Body::as_bytes);
    if let Some(body) = body.filter(|body| !body.is_empty()) {
        let _ = writeln!(lines, "> content-length: {}", body.len());
    }
    lines.push_str(">\n");
    lines
}

/// Formats the head of a response.
pub(super) fn response_lines(response: &Response) -> String {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or_default();
    let version = match response.version() {
        // As written by HTTP/2 tools.
        Version::HTTP_2 => "HTTP/2".to_owned(),
        version => format!("{version:?}"),
    };
    let first = format!("< {version} {} {reason}", status.as_u16());
    let mut lines = format!("{}\n", first.trim_end());
    push_fields(&mut lines, '<', response.headers());
    lines.push_str("<\n");
    lines
}

fn target(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn push_fields(lines: &mut String, mark: char, fields: &HeaderMap) {
    for (name, value) in fields {
        let _ = writeln!(lines, "{mark} {name}: {}", shown(name, value));
    }
}

/// Value for display: without secrets and control characters.
fn shown(name: &HeaderName, value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    if *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION {
        return match text.split_once(' ') {
            Some((scheme, _)) => format!("{} {HIDDEN}", printable(scheme)),
            None => HIDDEN.to_owned(),
        };
    }
    if *name == SET_COOKIE {
        let (pair, attributes) = match text.split_once(';') {
            Some((pair, attributes)) => (pair, format!(";{attributes}")),
            None => (&*text, String::new()),
        };
        let cookie = pair.split_once('=').map_or("", |(cookie, _)| cookie);
        return printable(&format!("{cookie}={HIDDEN}{attributes}"));
    }
    if *name == COOKIE || is_identity(name.as_str().as_bytes()) {
        return HIDDEN.to_owned();
    }
    printable(&text)
}

fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\t' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for (name, value, wanted) in [
            ("authorization", "Bearer abc def", "Bearer [hidden]"),
            ("authorization", "abc", "[hidden]"),
            ("proxy-authorization", "Basic YTpi", "Basic [hidden]"),
            ("cookie", "a=1; b=2", "[hidden]"),
            ("set-cookie", "a=1; Path=/", "a=[hidden]; Path=/"),
            ("set-cookie", "nothing", "=[hidden]"),
            ("x-api-key", "abc", "[hidden]"),
            ("etag", "\"abc\"", "\"abc\""),
            ("x-note", "a\u{9b}2J", "a\\u{9b}2J"),
        ] {
            let name: HeaderName = name.parse().expect("a name");
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            assert_eq!(shown(&name, &value), wanted);
        }
    }
}
