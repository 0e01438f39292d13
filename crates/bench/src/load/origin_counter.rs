//! Reader of the origin's request counter.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::error::LoadError;
use super::report::OriginCount;
use super::target::TargetUrl;

const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Maximum size of the counter's response, in bytes.
const MAX_ANSWER: u64 = 64 * 1024 * 1024;

/// Reads the counter: a plain number, or JSON with `requests` and optionally `renders`.
///
/// # Errors
///
/// [`LoadError::Counter`] if the origin cannot be reached or the response has another form.
pub(super) fn read(url: &TargetUrl) -> Result<OriginCount, LoadError> {
    try_read(url).map_err(|why| LoadError::Counter {
        url: url.to_string(),
        why,
    })
}

fn try_read(url: &TargetUrl) -> Result<OriginCount, String> {
    if url.server.secure {
        return Err("the counter does not support TLS; use an http:// URL".to_owned());
    }
    let answer = fetch(url).map_err(|why| why.to_string())?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or("the response is not HTTP")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("the response has status {status}"));
    }
    parse(body).ok_or_else(|| {
        "the response is neither a number nor JSON with the number in `requests`".to_owned()
    })
}

/// Sends an HTTP/1.0 request, so that the response ends with the connection.
fn fetch(url: &TargetUrl) -> std::io::Result<Vec<u8>> {
    let server = &url.server;
    let address = (server.host.as_str(), server.port)
        .to_socket_addrs()?
        .next()
        .ok_or(std::io::ErrorKind::NotFound)?;
    let mut socket = TcpStream::connect_timeout(&address, TIME_LIMIT)?;
    socket.set_read_timeout(Some(TIME_LIMIT))?;
    let mut request = b"GET ".to_vec();
    url.write_path(0, &mut request);
    let rest = format!(
        " HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.authority()
    );
    request.extend_from_slice(rest.as_bytes());
    socket.write_all(&request)?;
    let mut answer = Vec::new();
    socket.take(MAX_ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

fn parse(body: &str) -> Option<OriginCount> {
    let value: serde_json::Value = serde_json::from_str(body.trim()).ok()?;
    match value.as_u64() {
        Some(requests) => Some(OriginCount {
            requests,
            renders: None,
        }),
        None => Some(OriginCount {
            requests: value.get("requests")?.as_u64()?,
            renders: value.get("renders").and_then(serde_json::Value::as_u64),
        }),
    }
}

impl OriginCount {
    /// Returns the increments since `before`; zero if the origin was restarted in between.
    pub(super) fn since(self, before: Self) -> Self {
        let renders = self.renders.zip(before.renders);
        Self {
            requests: self.requests.saturating_sub(before.requests),
            renders: renders.map(|(after, before)| after.saturating_sub(before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_numbers_or_json() {
        let count = |requests, renders| Some(OriginCount { requests, renders });
        assert_eq!(parse("12\n"), count(12, None));
        assert_eq!(parse("{\"requests\":3}"), count(3, None));
        assert_eq!(
            parse("{\"requests\":3,\"renders\":2,\"urls\":{}}"),
            count(3, Some(2))
        );
        for body in ["", "x", "-1", "{}", "[1]", "{\"requests\":\"1\"}"] {
            assert_eq!(parse(body), None, "{body}");
        }
    }

    #[test]
    fn the_difference_is_the_number_of_requests_added() {
        let one = OriginCount {
            requests: 10,
            renders: Some(4),
        };
        let two = OriginCount {
            requests: 15,
            renders: Some(5),
        };
        let added = OriginCount {
            requests: 5,
            renders: Some(1),
        };
        assert_eq!(two.since(one), added);
        assert_eq!(one.since(two).requests, 0);
    }
}
