//! Requests to explain.

use std::net::IpAddr;

use http::StatusCode;
use microcache_proxy::{InvalidRequest, SimulatedRequest};
use serde::Deserialize;

use crate::problem::Problem;
use crate::scopes;

/// Maximum number of fields of a request.
const MAX_HEADERS: usize = 100;

/// Query of `GET /v1/explain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainQuery {
    url: String,
    method: Option<String>,
    from: Option<String>,
}

/// Body of `POST /v1/explain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    url: String,
    #[serde(default)]
    method: Option<String>,
    /// Field lines: `Name: value`.
    #[serde(default)]
    headers: Vec<String>,
    /// Client address.
    #[serde(default)]
    from: Option<String>,
    /// Fetches the response from the origin, too.
    #[serde(default)]
    pub(super) fetch: bool,
}

impl From<ExplainQuery> for ExplainRequest {
    fn from(looked: ExplainQuery) -> Self {
        let ExplainQuery { url, method, from } = looked;
        Self {
            url,
            method,
            headers: Vec::new(),
            from,
            fetch: false,
        }
    }
}

impl ExplainRequest {
    /// Creates a GET request for a URL with these fields.
    pub(crate) const fn of_fields(url: String, headers: Vec<String>) -> Self {
        Self {
            url,
            method: None,
            headers,
            from: None,
            fetch: false,
        }
    }

    /// Builds the request head as a client would send it.
    pub(crate) fn imagined(&self) -> Result<SimulatedRequest, Problem> {
        self.imagined_at(&scopes::address(&self.url)?)
    }

    /// Builds the heads of the request over http and over https.
    pub(crate) fn imagined_by_both(&self) -> Result<[SimulatedRequest; 2], Problem> {
        let mut url = scopes::address(&self.url)?;
        url.is_secure = false;
        let plain = self.imagined_at(&url)?;
        url.is_secure = true;
        Ok([plain, self.imagined_at(&url)?])
    }

    fn imagined_at(&self, url: &scopes::TargetUrl) -> Result<SimulatedRequest, Problem> {
        let method = self.method()?;
        let mut lines = vec![format!("{method} {} HTTP/1.1", url.target)];
        let mut named = Vec::new();
        for header in &self.headers {
            let (name, value) = read_header(header)?;
            lines.push(format!("{name}: {value}"));
            named.push(name.to_ascii_lowercase());
        }
        let is_named = |name: &str| named.iter().any(|one| one == name);
        if self.headers.len() > MAX_HEADERS {
            let what = format!(
                "{} headers exceed the limit of {MAX_HEADERS}",
                self.headers.len()
            );
            let remedy = "omit headers that do not matter";
            return Err(Problem::of_field("headers", what, remedy));
        }
        if !is_named("host") {
            lines.insert(1, format!("Host: {}", url.host));
        }
        if url.is_secure && !is_named("x-forwarded-proto") {
            lines.push("X-Forwarded-Proto: https".to_owned());
        }
        let asks_for_more = |name: &String| {
            let more = ["content-length", "transfer-encoding", "upgrade", "expect"];
            more.contains(&name.as_str())
        };
        if self.fetch && (!matches!(method, "GET" | "HEAD") || named.iter().any(asks_for_more)) {
            return Err(Problem::of_field(
                "fetch",
                "the origin is contacted only with GET and HEAD without content or upgrade, since other requests \
                 may change state",
                "omit `fetch`, or explain a GET of the same URL",
            ));
        }
        lines.push("\r\n".to_owned());
        Ok(SimulatedRequest {
            head: lines.join("\r\n").into_bytes(),
            address: self.address()?,
            is_secure: url.is_secure,
        })
    }

    fn method(&self) -> Result<&str, Problem> {
        let method = self.method.as_deref().unwrap_or("GET");
        let is_method = http::Method::from_bytes(method.as_bytes()).is_ok();
        is_method.then_some(method).ok_or_else(|| {
            let what = format!("`{}` is not a method", scopes::shown(method));
            Problem::of_field("method", what, "use a method such as GET or HEAD")
        })
    }

    fn address(&self) -> Result<Option<IpAddr>, Problem> {
        let read = |from: &String| {
            from.parse().map_err(|_| {
                let what = format!("`{}` is not an IP address", scopes::shown(from));
                Problem::of_field(
                    "from",
                    what,
                    "use the address of a client, such as 192.0.2.1",
                )
            })
        };
        self.from.as_ref().map(read).transpose()
    }
}

/// Parses a field line. Errors omit the value, which may be a secret.
fn read_header(line: &str) -> Result<(&str, &str), Problem> {
    let refused = |what: String| {
        let remedy = "use a field line, such as Accept-Language: de";
        Err(Problem::of_field("headers", what, remedy))
    };
    let Some((name, value)) = line.split_once(':') else {
        return refused("a header has no colon".to_owned());
    };
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return refused(format!("`{}` is not a header name", scopes::shown(name)));
    }
    if http::HeaderValue::from_str(value).is_err() {
        return refused(format!("the value of `{name}` contains invalid characters"));
    }
    Ok((name, value.trim()))
}

/// Returns the problem for a request that the parser rejects.
pub(crate) fn refused(refused: &InvalidRequest) -> Problem {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    let what = format!(
        "the parser would reject the request with {}: {}",
        status.as_u16(),
        refused.reason
    );
    Problem::of_field("url", what, "use a valid HTTP request (RFC 9112 §3)")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn head(value: Value) -> Result<String, Problem> {
        let value: ExplainRequest = serde_json::from_value(value).expect("a request");
        value
            .imagined()
            .map(|one| String::from_utf8(one.head).expect("text"))
    }

    #[test]
    fn a_request_is_put_together_as_its_client_would_send_it() {
        for (value, expected) in [
            (
                json!({"url": "http://A.example/x?y"}),
                "GET /x?y HTTP/1.1\r\nHost: a.example\r\n\r\n",
            ),
            (
                json!({"url": "http://a/", "method": "HEAD", "headers": ["Cookie: a=b ", "HOST:b"], "fetch": true}),
                "HEAD / HTTP/1.1\r\nCookie: a=b\r\nHOST: b\r\n\r\n",
            ),
            (
                json!({"url": "https://a/"}),
                "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n",
            ),
            (
                json!({"url": "https://a/", "headers": ["x-forwarded-proto: http"]}),
                "GET / HTTP/1.1\r\nHost: a\r\nx-forwarded-proto: http\r\n\r\n",
            ),
        ] {
            assert_eq!(head(value.clone()).as_deref(), Ok(expected), "{value}");
        }
    }

    #[test]
    fn invalid_requests_are_refused_without_repeating_values() {
        for wrong in [
            json!({"url": "/x"}),
            json!({"url": "http://a/", "method": "G T"}),
            json!({"url": "http://a/", "method": ""}),
            json!({"url": "http://a/", "from": "nobody"}),
            json!({"url": "http://a/", "headers": ["Cookie"]}),
            json!({"url": "http://a/", "headers": ["Coo kie: s3cret"]}),
            json!({"url": "http://a/", "headers": [": s3cret"]}),
            json!({"url": "http://a/", "headers": ["Cookie: s3cret\r\nX: y"]}),
            json!({"url": "http://a/", "headers": ["Cookie: s3cret\u{0}"]}),
            json!({"url": "http://a/", "headers": vec!["A: b"; 101]}),
            json!({"url": "http://a/", "method": "POST", "fetch": true}),
            json!({"url": "http://a/", "headers": ["Upgrade: websocket"], "fetch": true}),
            json!({"url": "http://a/", "headers": ["Content-Length: 5"], "fetch": true}),
        ] {
            let problem = head(wrong.clone()).expect_err("refused");
            let text = format!("{problem:?}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
