//! Access for pages of other origins (CORS).
//!
//! Browsers hide responses from pages of another origin unless CORS fields allow them. They do not restrict
//! WebSocket connections but send `Origin`, which the server has to check.

use microcache_engine::OriginResponse;
use microcache_policy::{Fields, FieldsBuf};
use microcache_store::{Hit, Memory};

use crate::answer;

/// Allowed methods and request fields (CORS): for origins that may only read, and for those that may publish.
const READING: [&str; 2] = ["GET, HEAD", "Cache-Control, Last-Event-ID"];
const PUBLISHING: [&str; 2] = [
    "GET, HEAD, PUT, PATCH, DELETE, POST",
    "Authorization, Cache-Control, Content-Type, If-Match, If-None-Match, Last-Event-ID, Push-TTL",
];
/// `Access-Control-Max-Age`, in seconds.
const MAX_AGE: &str = "600";

/// An allowed origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedOrigin {
    /// Any origin.
    Any,
    /// One origin, such as `https://shop.example`; without the scheme's default port.
    One(String),
}

impl AllowedOrigin {
    /// Parses an origin as browsers send it in `Origin`, or `*`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let (scheme, host) = text.split_once("://")?;
        let is_host = !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
        let is_scheme = matches!(&*scheme.to_ascii_lowercase(), "http" | "https");
        (is_host && is_scheme).then(|| Self::One(normal(text)))
    }
}

/// Lowercases an origin and removes the default port.
fn normal(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let port = if origin.starts_with("https://") {
        ":443"
    } else {
        ":80"
    };
    origin.strip_suffix(port).unwrap_or(&origin).to_owned()
}

/// The origin of the page that caused a request, relative to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOrigin {
    /// This server's own origin, or the client is not a browser.
    Own,
    /// An allowed origin that is listed by name.
    Listed,
    /// An unlisted origin, where `*` is allowed.
    Wildcard,
    /// An origin that is not allowed.
    Forbidden,
}

fn page_origin(sites: &[AllowedOrigin], request: Fields<'_>, authority: &[u8]) -> PageOrigin {
    let mut origins = request.all("origin");
    let Some(origin) = origins.next() else {
        return PageOrigin::Own;
    };
    if origins.next().is_some() {
        return PageOrigin::Forbidden;
    }
    classify_origin(sites, origin, request, authority)
}

fn classify_origin(
    sites: &[AllowedOrigin],
    origin: &[u8],
    request: Fields<'_>,
    authority: &[u8],
) -> PageOrigin {
    let Ok(origin) = std::str::from_utf8(origin) else {
        return PageOrigin::Forbidden;
    };
    let normal = normal(origin);
    if sites.contains(&AllowedOrigin::One(normal.clone())) {
        PageOrigin::Listed
    } else if is_own_origin(&normal, request, authority) {
        PageOrigin::Own
    } else if sites.contains(&AllowedOrigin::Any) {
        PageOrigin::Wildcard
    } else {
        PageOrigin::Forbidden
    }
}

/// Returns whether an origin is this server as the client addresses it. The scheme is not compared: a proxy
/// in front may terminate TLS.
fn is_own_origin(origin: &str, request: Fields<'_>, authority: &[u8]) -> bool {
    // The host that a trusted proxy reports; untrusted peers cannot set it.
    let said = request.members("x-forwarded-host").next();
    let host = said.unwrap_or(authority).to_ascii_lowercase();
    let Some((scheme, site)) = origin.split_once("://") else {
        return false;
    };
    let port: &[u8] = if scheme == "https" { b":443" } else { b":80" };
    site.as_bytes() == host.strip_suffix(port).unwrap_or(&host)
}

/// Checks that a WebSocket may be opened from the request's origin; fails with a 403 response.
pub(crate) fn check_websocket(
    sites: &[AllowedOrigin],
    request: Fields<'_>,
    authority: &[u8],
) -> Result<(), OriginResponse> {
    match page_origin(sites, request, authority) {
        PageOrigin::Forbidden => Err(answer::problem(
            403,
            "pages of this origin may not subscribe by WebSocket (option `push_allow_origins`)",
        )),
        PageOrigin::Own | PageOrigin::Listed | PageOrigin::Wildcard => Ok(()),
    }
}

/// Returns whether a cookie may authorize a write: the page is of this host or of a listed origin. A request
/// without `Origin` and `Referer` may come from any page.
pub(crate) fn allows_cookie_write(
    sites: &[AllowedOrigin],
    request: Fields<'_>,
    authority: &[u8],
) -> bool {
    let from = match (request.contains("origin"), request.get("referer")) {
        (true, _) => page_origin(sites, request, authority),
        (false, Some(referer)) => {
            let end = referer
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'/')
                .nth(2);
            let origin = &referer[..end.map_or(referer.len(), |(end, _)| end)];
            classify_origin(sites, origin, request, authority)
        }
        (false, None) => PageOrigin::Forbidden,
    };
    matches!(from, PageOrigin::Own | PageOrigin::Listed)
}

/// Returns whether a cookie may authorize a read: the page is of this host or of a listed origin. `*` lists
/// no origin.
pub(crate) fn allows_cookie_read(
    sites: &[AllowedOrigin],
    request: Fields<'_>,
    authority: &[u8],
) -> bool {
    let is = |name, value: &[u8]| request.get(name) == Some(value);
    match page_origin(sites, request, authority) {
        PageOrigin::Listed => true,
        // Without `Origin`, `Sec-Fetch-Site` reveals cross-site requests; following a link is the user's
        // request, not the page's.
        PageOrigin::Own => {
            request.contains("origin")
                || !is("sec-fetch-site", b"cross-site")
                || is("sec-fetch-mode", b"navigate")
        }
        PageOrigin::Wildcard | PageOrigin::Forbidden => false,
    }
}

/// The use of cookies in responses to other origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieUse {
    /// Listed origins may send cookies.
    Listed,
    /// Cookies are ignored, so none are needed.
    Ignored,
}

/// Returns the CORS fields of a response.
pub(crate) fn response_fields(
    sites: &[AllowedOrigin],
    request: Fields<'_>,
    cookies: CookieUse,
) -> FieldsBuf {
    let mut granted = FieldsBuf::new();
    if sites.is_empty() {
        return granted;
    }
    let origin = match page_origin(sites, request, b"") {
        PageOrigin::Listed => request.get("origin").unwrap_or_default(),
        PageOrigin::Wildcard => b"*",
        PageOrigin::Own | PageOrigin::Forbidden => b"",
    };
    if !origin.is_empty() {
        granted.push("Access-Control-Allow-Origin", origin);
        granted.push("Access-Control-Expose-Headers", "ETag, Link");
        if origin != b"*" && cookies == CookieUse::Listed {
            granted.push("Access-Control-Allow-Credentials", "true");
        }
    }
    granted.push("Vary", "Origin");
    granted
}

/// Adds the CORS fields to a stored response without copying a large body.
pub(crate) fn with_response_fields(
    sites: &[AllowedOrigin],
    request: Fields<'_>,
    cookies: CookieUse,
    page: Hit,
) -> Hit {
    if sites.is_empty() {
        return page;
    }
    let mut fields = FieldsBuf::from(page.fields());
    fields.extend_if(response_fields(sites, request, cookies).fields(), |_, _| {
        true
    });
    Memory::detached_hit(page.with_fields(fields.fields()))
}

/// Answers a CORS preflight request; `None` if it is none or the origin is not allowed.
pub(crate) fn preflight(sites: &[AllowedOrigin], request: Fields<'_>) -> Option<OriginResponse> {
    if !request.contains("access-control-request-method") {
        return None;
    }
    let [methods, fields] = match page_origin(sites, request, b"") {
        PageOrigin::Listed => PUBLISHING,
        PageOrigin::Wildcard => READING,
        PageOrigin::Own | PageOrigin::Forbidden => return None,
    };
    let mut answer = answer::bare(204);
    answer.fields.push("Access-Control-Allow-Methods", methods);
    answer.fields.push("Access-Control-Allow-Headers", fields);
    answer.fields.push("Access-Control-Max-Age", MAX_AGE);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(named: &[&str]) -> Vec<AllowedOrigin> {
        named
            .iter()
            .filter_map(|it| AllowedOrigin::parse(it))
            .collect()
    }

    fn check_from(named: &[&str], request: &str, expected: PageOrigin) {
        let request = request.replace('|', "\r\n") + "\r\n";
        let fields = Fields::new(request.as_bytes());
        let seen = page_origin(&sites(named), fields, b"shop.example:8080");
        assert_eq!(seen, expected, "{request}");
    }

    #[test]
    fn a_site_is_a_scheme_and_a_host() {
        for (text, expected) in [
            ("*", Some(AllowedOrigin::Any)),
            (
                "https://a.example",
                Some(AllowedOrigin::One("https://a.example".to_owned())),
            ),
            (
                "HTTPS://A.example:443",
                Some(AllowedOrigin::One("https://a.example".to_owned())),
            ),
            (
                "http://a.example:443",
                Some(AllowedOrigin::One("http://a.example:443".to_owned())),
            ),
            (
                "http://[::1]:80",
                Some(AllowedOrigin::One("http://[::1]".to_owned())),
            ),
            ("https://a.example/", None),
            ("https://*.example", None),
            ("a.example", None),
            ("https://", None),
            ("null", None),
            ("ftp://a.example", None),
        ] {
            assert_eq!(AllowedOrigin::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_origin_of_a_page_is_the_browsers() {
        let other = ["https://other.example"];
        for (request, expected) in [
            ("Accept: */*", PageOrigin::Own),
            ("Origin: http://shop.example:8080", PageOrigin::Own),
            ("Origin: https://shop.example:8080", PageOrigin::Own),
            ("Origin: http://SHOP.example:8080", PageOrigin::Own),
            ("Origin: http://shop.example", PageOrigin::Forbidden),
            ("Origin: https://other.example", PageOrigin::Listed),
            ("Origin: https://other.example:443", PageOrigin::Listed),
            ("Origin: http://other.example", PageOrigin::Forbidden),
            (
                "Origin: https://other.example.evil.example",
                PageOrigin::Forbidden,
            ),
            ("Origin: null", PageOrigin::Forbidden),
            ("Origin: ", PageOrigin::Forbidden),
            (
                "Origin: http://shop.example:8080|Origin: https://evil.example",
                PageOrigin::Forbidden,
            ),
            (
                "Origin: http://shop.example:8080, https://evil.example",
                PageOrigin::Forbidden,
            ),
            // A reverse proxy in front serves another host name and forwards it.
            (
                "Origin: https://www.example|X-Forwarded-Host: www.example",
                PageOrigin::Own,
            ),
            (
                "Origin: https://www.example|X-Forwarded-Host: www.example:443, b",
                PageOrigin::Own,
            ),
            (
                "Origin: http://shop.example:8080|X-Forwarded-Host: www.example",
                PageOrigin::Forbidden,
            ),
        ] {
            check_from(&other, request, expected);
        }
        check_from(&["*"], "Origin: https://evil.example", PageOrigin::Wildcard);
        check_from(&["*"], "Origin: null", PageOrigin::Wildcard);
        check_from(
            &["*", other[0]],
            "Origin: https://other.example",
            PageOrigin::Listed,
        );
    }

    #[test]
    fn with_a_cookie_only_allowed_sites_may_publish() {
        for (request, expected) in [
            ("Accept: */*", false),
            ("Origin: http://shop.example:8080", true),
            ("Origin: https://b", true),
            ("Origin: https://evil.example", false),
            ("Origin: null", false),
            (
                "Origin: https://evil.example|Referer: http://shop.example:8080/",
                false,
            ),
            ("Referer: http://shop.example:8080/page", true),
            ("Referer: http://shop.example:8080", true),
            ("Referer: https://b/x/y", true),
            (
                "Referer: https://evil.example/http://shop.example:8080/",
                false,
            ),
            ("Referer: https://shop.example:8080@evil.example/", false),
            ("Referer: x", false),
        ] {
            let fields = request.replace('|', "\r\n") + "\r\n";
            let fields = Fields::new(fields.as_bytes());
            let sites = sites(&["*", "https://b"]);
            assert_eq!(
                allows_cookie_write(&sites[1..], fields, b"shop.example:8080"),
                expected,
                "{request}"
            );
        }
        let any = Fields::new(b"Origin: https://evil.example\r\n");
        assert!(!allows_cookie_write(&sites(&["*"]), any, b"shop.example"));
    }

    #[test]
    fn cookies_count_for_pages_from_here_and_of_sites_that_are_named() {
        for (request, expected) in [
            ("Accept: */*", true),
            ("Origin: http://shop.example:8080", true),
            ("Origin: https://b", true),
            ("Origin: https://evil.example", false),
            ("Origin: null", false),
            ("Sec-Fetch-Site: same-origin", true),
            ("Sec-Fetch-Site: cross-site", false),
            ("Sec-Fetch-Site: cross-site|Sec-Fetch-Mode: navigate", true),
            ("Sec-Fetch-Site: cross-site|Origin: https://b", true),
        ] {
            let fields = request.replace('|', "\r\n") + "\r\n";
            let fields = Fields::new(fields.as_bytes());
            let known =
                allows_cookie_read(&sites(&["*", "https://b"]), fields, b"shop.example:8080");
            assert_eq!(known, expected, "{request}");
        }
        let named = Fields::new(b"Origin: https://b\r\n");
        let granted = response_fields(&sites(&["https://b"]), named, CookieUse::Listed);
        let credentials = granted.fields().get("access-control-allow-credentials");
        assert_eq!(credentials, Some(&b"true"[..]));
    }

    #[test]
    fn readers_get_cors_fields_and_publishing_needs_a_listed_site() {
        let allowed = |named: &[&str], origin: &str| {
            let request = format!("Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\n");
            let request = Fields::new(request.as_bytes());
            let sites = sites(named);
            let fields = response_fields(&sites, request, CookieUse::Ignored);
            let methods = preflight(&sites, request).map(|answer| {
                let methods = answer.fields.fields().get("access-control-allow-methods");
                String::from_utf8_lossy(methods.unwrap_or_default()).into_owned()
            });
            let block = String::from_utf8_lossy(fields.fields().as_block()).into_owned();
            (block, methods)
        };
        let expose = "Access-Control-Expose-Headers: ETag, Link\r\nVary: Origin\r\n";
        let (read, all) = ("GET, HEAD".to_owned(), PUBLISHING[0].to_owned());
        let named = format!("Access-Control-Allow-Origin: https://b\r\n{expose}");
        assert_eq!(allowed(&["https://b"], "https://b"), (named, Some(all)));
        let any = format!("Access-Control-Allow-Origin: *\r\n{expose}");
        assert_eq!(allowed(&["*"], "https://c"), (any, Some(read)));
        let vary = "Vary: Origin\r\n".to_owned();
        assert_eq!(allowed(&["https://b"], "https://c"), (vary, None));
        assert_eq!(allowed(&[], "https://b"), (String::new(), None));
    }
}
