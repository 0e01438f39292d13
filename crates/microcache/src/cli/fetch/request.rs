//! Request options of `microcache fetch`: method, fields, body and proxy.

use std::fs;
use std::io::{self, Read};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Arg, ArgAction, ArgMatches};
use http::Method;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT,
};
use reqwest::Url;

use super::{Proxy, flag};
use crate::cli::texts;

/// Default content type of a body, as for HTML forms.
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

pub(super) fn flags() -> Vec<Arg> {
    vec![
        flag("header", Some('H'), "FIELD")
            .action(ArgAction::Append)
            .help("Request header field, such as 'Accept: text/html'"),
        flag("user-agent", Some('A'), "AGENT")
            .help("User-Agent of the request [microcache/VERSION]"),
        flag("user", Some('u'), "USER:PASSWORD")
            .help("HTTP Basic credentials; other users of the machine can see them while the command runs"),
        flag("request", Some('X'), "METHOD")
            .help("Method; all but GET and HEAD bypass the cache and invalidate stored responses [GET; POST with -d]"),
        flag("data", Some('d'), "DATA")
            .action(ArgAction::Append)
            .allow_hyphen_values(true)
            .help("Request body, application/x-www-form-urlencoded unless --header sets another type; @FILE reads a \
                   file without line ends, @- standard input"),
    ]
}

pub(super) fn has_data(matches: &ArgMatches) -> bool {
    matches.contains_id("data")
}

pub(super) fn method(matches: &ArgMatches) -> Result<Method, String> {
    let is_head = matches.get_flag("head");
    let Some(name) = matches.get_one::<String>("request") else {
        return Ok(match (is_head, has_data(matches)) {
            (true, _) => Method::HEAD,
            (false, true) => Method::POST,
            (false, false) => Method::GET,
        });
    };
    match Method::from_bytes(name.as_bytes()) {
        Err(_) => Err(format!("--request {name:?} is not a method")),
        Ok(Method::CONNECT) => Err("--request CONNECT is not supported".to_owned()),
        Ok(Method::HEAD) if has_data(matches) => {
            Err("--request HEAD has no body: omit --data".to_owned())
        }
        Ok(method) if is_head && method != Method::HEAD => {
            Err(format!("--head and --request {method} exclude each other"))
        }
        Ok(method) => Ok(method),
    }
}

/// Builds the body; repeated values form one form.
pub(super) fn data(matches: &ArgMatches) -> Result<Option<Vec<u8>>, String> {
    let parts = texts(matches, "data");
    let parts: Result<Vec<_>, _> = parts.iter().map(|part| content(part)).collect();
    Ok(Some(parts?.join(&b'&')).filter(|_| has_data(matches)))
}

fn content(part: &str) -> Result<Vec<u8>, String> {
    let Some(name) = part.strip_prefix('@') else {
        return Ok(part.as_bytes().to_vec());
    };
    let read = if name == "-" {
        let mut content = Vec::new();
        io::stdin().read_to_end(&mut content).map(|_| content)
    } else {
        fs::read(name)
    };
    let mut content = read.map_err(|error| format!("--data @{name}: {error}"))?;
    content.retain(|byte| !matches!(byte, b'\r' | b'\n'));
    Ok(content)
}

/// Builds the fields from `-H`, `-A`, `-u` and `-d`. A field of `-H` overrides the other flags.
pub(super) fn headers(matches: &ArgMatches) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for line in texts(matches, "header") {
        let (name, value) = field(&line)?;
        headers.append(name, value);
    }
    let text = |name: &str| matches.get_one::<String>(name);
    if let Some(agent) = text("user-agent") {
        let unfit = |_| "--user-agent contains invalid characters";
        let agent = HeaderValue::from_bytes(agent.as_bytes()).map_err(unfit)?;
        headers.entry(USER_AGENT).or_insert(agent);
    }
    if let Some(user) = text("user") {
        let credentials = basic(user)?;
        headers.entry(AUTHORIZATION).or_insert(credentials);
    }
    if has_data(matches) {
        headers.entry(CONTENT_TYPE).or_insert(FORM);
    }
    Ok(headers)
}

fn basic(user: &str) -> Result<HeaderValue, String> {
    if !user.contains(':') {
        return Err("--user: expected USER:PASSWORD; without a password write USER:".to_owned());
    }
    let credentials = format!("Basic {}", BASE64_STANDARD.encode(user));
    let credentials = HeaderValue::from_str(&credentials);
    credentials.map_err(|error: InvalidHeaderValue| format!("--user: {error}"))
}

fn field(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let example = "a name, a colon and a value, such as 'Accept: text/html'";
    let Some((name, value)) = line.split_once(':') else {
        return Err(format!("--header: expected {example}"));
    };
    let unfit = || format!("--header: expected {example}, and no other characters");
    let name: HeaderName = name.trim().parse().map_err(|_| unfit())?;
    // The value may be secret.
    let unfit = |_| format!("--header '{name}: …' contains invalid characters");
    // Letters beyond ASCII are sent as they were typed.
    let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(unfit)?;
    Ok((name, value))
}

/// Parses a proxy's URL, or host and port; an empty value is none. No message repeats its password.
pub(super) fn proxy(matches: &ArgMatches) -> Result<Option<Proxy>, String> {
    let Some(text) = matches.get_one::<String>("proxy") else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Proxy::None));
    }
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    match Url::parse(&with_scheme) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Some(Proxy::At(url))),
        Ok(_) => Err("--proxy: HTTP proxies only, such as http://proxy:3128".to_owned()),
        Err(why) => Err(format!(
            "--proxy: {why}; expected a URL such as http://proxy:3128"
        )),
    }
}
