//! Request targets: URL pattern, method and body.

use std::fmt;

/// URL or URL pattern, with the request to send there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadTarget {
    /// URL, which may contain ranges.
    pub url: TargetUrl,
    /// Request method.
    pub method: String,
    /// Request content; empty for none.
    pub body: Vec<u8>,
}

impl LoadTarget {
    /// Returns a GET request without content.
    pub fn get(url: TargetUrl) -> Self {
        Self {
            url,
            method: "GET".to_owned(),
            body: Vec::new(),
        }
    }

    /// Returns the header fields of its requests: defaults, overridden by those of the settings.
    pub(crate) fn fields(&self, overrides: &[(String, String)]) -> Vec<(String, String)> {
        let mut fields = vec![
            ("Host", self.url.server.authority()),
            ("User-Agent", AGENT.to_owned()),
            ("Accept", "*/*".to_owned()),
        ];
        // Content-Length is sent even without content if the method anticipates it (RFC 9110 §8.6).
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            fields.push(("Content-Length", self.body.len().to_string()));
        }
        if !self.body.is_empty() {
            fields.push((
                "Content-Type",
                "application/x-www-form-urlencoded".to_owned(),
            ));
        }
        with_overrides(fields, overrides)
    }
}

/// Returns the default fields that are not overridden, followed by the configured ones.
pub(crate) fn with_overrides(
    usual: Vec<(&str, String)>,
    given: &[(String, String)],
) -> Vec<(String, String)> {
    let is_given = |name: &str| given.iter().any(|(g, _)| g.eq_ignore_ascii_case(name));
    let usual = usual
        .into_iter()
        .filter(|(name, _)| !is_given(name))
        .map(|(name, value)| (name.to_owned(), value));
    usual.chain(given.iter().cloned()).collect()
}

/// Value of the User-Agent field.
pub(crate) const AGENT: &str = concat!("microcache-bench/", env!("CARGO_PKG_VERSION"));

/// Absolute URL whose path and query may contain ranges, such as `http://localhost/page/[1-5000]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// Scheme, host and port.
    pub server: TargetServer,
    /// Path and query.
    pieces: Vec<PathPart>,
}

/// Scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetServer {
    /// `true` if the scheme is https.
    pub secure: bool,
    /// Host name or address; IPv6 addresses without brackets.
    pub host: String,
    /// Port number.
    pub port: u16,
}

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPart {
    Text(String),
    /// Inclusive range, padded with zeros to `width` digits.
    Range {
        first: u64,
        last: u64,
        width: usize,
    },
}

/// Maximum number of URLs in a pattern.
const MAX_URLS: u64 = 1 << 40;

impl TargetUrl {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// A message for the user, with the cause and a correction.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (secure, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else {
            return Err(format!(
                "`{text}` is not a URL; did you mean http://{text}?"
            ));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        if let Some(bad) = path.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!(
                "`{text}` has {bad:?} in its path; encode it as %{:02X}",
                u32::from(bad) & 0xff
            ));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = Self {
            server: TargetServer::parse(authority, secure)
                .map_err(|why| format!("`{text}` {why}"))?,
            pieces: pieces(&format!("{slash}{path}")).map_err(|why| format!("`{text}` {why}"))?,
        };
        match url.checked_count() {
            Some(count) if count <= MAX_URLS => Ok(url),
            _ => Err(format!("`{text}` expands to more than {MAX_URLS} URLs")),
        }
    }

    /// Number of URLs in the pattern.
    pub fn count(&self) -> u64 {
        self.checked_count().unwrap_or(MAX_URLS)
    }

    /// Path and query, with unexpanded ranges.
    pub fn path(&self) -> String {
        self.pieces.iter().map(ToString::to_string).collect()
    }

    fn checked_count(&self) -> Option<u64> {
        self.pieces
            .iter()
            .try_fold(1u64, |count, piece| match piece {
                PathPart::Text(_) => Some(count),
                PathPart::Range { first, last, .. } => {
                    count.checked_mul((last - first).checked_add(1)?)
                }
            })
    }

    /// Appends path and query of the URL with this index, counted from 0; the last range varies fastest.
    pub(crate) fn write_path(&self, index: u64, out: &mut Vec<u8>) {
        let mut behind = self.count();
        let mut index = index;
        for piece in &self.pieces {
            match piece {
                PathPart::Text(text) => out.extend_from_slice(text.as_bytes()),
                PathPart::Range { first, last, width } => {
                    behind /= last - first + 1;
                    write_number(first + index / behind, *width, out);
                    index %= behind;
                }
            }
        }
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.server, self.path())
    }
}

impl fmt::Display for PathPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Range { first, last, width } => write!(f, "[{first:0width$}-{last}]"),
        }
    }
}

impl TargetServer {
    fn parse(authority: &str, secure: bool) -> Result<Self, String> {
        if authority.contains('@') {
            return Err("contains user information; use -H 'Authorization: …'".to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest
                    .split_once(']')
                    .ok_or("has no ] after the IPv6 address")?;
                (host, rest.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let default = if secure { 443 } else { 80 };
        let port = match port {
            None | Some("") => default,
            Some(port) => port
                .parse()
                .ok()
                .filter(|&port| port > 0)
                .ok_or("has an invalid port; expected 1 to 65535")?,
        };
        if host.is_empty() || !host.chars().all(|c| c.is_ascii_graphic()) {
            return Err("has no host; expected http://HOST/PATH".to_owned());
        }
        Ok(Self {
            secure,
            host: host.to_owned(),
            port,
        })
    }

    /// Value of the Host field.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.secure, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for TargetServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// Splits a path into text and ranges. Brackets without a numeric range are text.
fn pieces(path: &str) -> Result<Vec<PathPart>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let Some((range, behind)) = after
            .split_once(']')
            .and_then(|(inner, behind)| Some((inner.split_once('-')?, behind)))
            .filter(|((first, last), _)| is_number(first) && is_number(last))
        else {
            text.push('[');
            rest = after;
            continue;
        };
        pieces.push(PathPart::Text(std::mem::take(&mut text)));
        pieces.push(piece(range)?);
        rest = behind;
    }
    text.push_str(rest);
    pieces.push(PathPart::Text(text));
    Ok(pieces)
}

fn piece((first, last): (&str, &str)) -> Result<PathPart, String> {
    let width = if first.starts_with('0') {
        first.len()
    } else {
        0
    };
    let number = |word: &str| word.parse::<u64>().ok().filter(|&n| n <= MAX_URLS);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(PathPart::Range { first, last, width }),
        (Some(_), Some(_)) => Err(format!(
            "has a descending range; did you mean [{last}-{first}]?"
        )),
        _ => Err(format!("has a range that exceeds {MAX_URLS}")),
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

fn write_number(number: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let digits = &digits[at..];
    out.resize(out.len() + width.saturating_sub(digits.len()), b'0');
    out.extend_from_slice(digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(url: &str) -> Vec<String> {
        let url = TargetUrl::parse(url).expect("a url");
        (0..url.count())
            .map(|index| {
                let mut out = Vec::new();
                url.write_path(index, &mut out);
                String::from_utf8(out).expect("a path is ASCII")
            })
            .collect()
    }

    #[test]
    fn a_url_has_a_server_and_a_path() {
        for (text, server, path) in [
            ("http://a", "http://a", "/"),
            ("http://a:80/", "http://a", "/"),
            ("https://a:443/x?y=1#z", "https://a", "/x?y=1"),
            ("http://a:8080?q", "http://a:8080", "/?q"),
            ("http://[::1]:81/b", "http://[::1]:81", "/b"),
        ] {
            let url = TargetUrl::parse(text).expect("a url");
            assert_eq!(url.server.to_string(), server);
            assert_eq!(paths(text), [path]);
        }
        let six = TargetUrl::parse("http://[::1]/").expect("a url");
        assert_eq!((six.server.host.as_str(), six.server.port), ("::1", 80));
    }

    #[test]
    fn ranges_count_through() {
        assert_eq!(paths("http://a/[8-11]"), ["/8", "/9", "/10", "/11"]);
        assert_eq!(paths("http://a/[08-10]x"), ["/08x", "/09x", "/10x"]);
        assert_eq!(
            paths("http://a/[1-2]/?p=[5-6]"),
            ["/1/?p=5", "/1/?p=6", "/2/?p=5", "/2/?p=6"]
        );
        assert_eq!(paths("http://a/x[]y[a-b]z[3"), ["/x[]y[a-b]z[3"]);
    }

    #[test]
    fn a_url_is_shown_as_it_was_written() {
        for text in [
            "http://a/[1-50]",
            "https://b:1/[001-100]?x",
            "http://[::1]/",
        ] {
            assert_eq!(TargetUrl::parse(text).expect("a url").to_string(), text);
        }
    }

    #[test]
    fn invalid_urls_get_a_remedy() {
        for (text, says) in [
            ("localhost", "http://localhost?"),
            ("ftp://a", "is not a URL"),
            ("http:///x", "has no host"),
            ("http://a:0/", "port"),
            ("http://a:99999/", "port"),
            ("http://a:x/", "port"),
            ("http://[::1/", "has no ]"),
            ("http://u:p@a/", "Authorization"),
            ("http://a/b c", "encode it as %20"),
            ("http://a/[9-1]", "[1-9]?"),
            ("http://a/[1-99999999999999]", "exceeds"),
            ("http://a/[1-9999999]/[1-9999999]", "more than"),
        ] {
            let message = TargetUrl::parse(text).expect_err(text);
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
