//! The variables of a request (RFC 3875 §4.1), as nginx and Apache set them for PHP.

use std::net::{IpAddr, Ipv4Addr};

use http::Method;
use microcache_policy::Fields;
use microcache_wire::fastcgi::Params;

use super::call::ScriptCall;

/// Fields that become other variables, or none. `Proxy` would become `HTTP_PROXY`, which HTTP clients of an application
/// take for its proxy (httpoxy, CVE-2016-5385). `HTTPS` says what `X-Forwarded-Proto` does; MediaWiki takes that field for
/// a sign of a proxy at the default port, and would redirect to it.
const NO_VARIABLES: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "proxy",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-proto",
];

/// Head of a request.
pub(in crate::upstream) struct RequestView<'a> {
    pub(in crate::upstream) method: &'a Method,
    pub(in crate::upstream) target: &'a [u8],
    pub(in crate::upstream) authority: &'a [u8],
    pub(in crate::upstream) fields: Fields<'a>,
    /// Length of the body.
    pub(in crate::upstream) length: Option<u64>,
}

/// Returns all variables of a request.
pub(in crate::upstream) fn variables(call: &ScriptCall, request: &RequestView<'_>) -> Params {
    let mut params = Params::default();
    let script = &call.script;
    params.push("SCRIPT_FILENAME", &[script.root(), script.name()]);
    params.push("SCRIPT_NAME", &[script.name()]);
    params.push("DOCUMENT_ROOT", &[script.root()]);
    // PHP_SELF is SCRIPT_NAME and PATH_INFO.
    params.push("DOCUMENT_URI", &[script.name(), script.path_info()]);
    if !script.path_info().is_empty() {
        params.push("PATH_INFO", &[script.path_info()]);
        params.push("PATH_TRANSLATED", &[script.root(), script.path_info()]);
    }
    let target = request.target;
    let query = target.iter().position(|&byte| byte == b'?');
    let query = query.map_or(&[][..], |at| &target[at + 1..]);
    params.push("REQUEST_URI", &[target]);
    params.push("QUERY_STRING", &[query]);
    params.push("REQUEST_METHOD", &[request.method.as_str().as_bytes()]);
    if let Some(media_type) = request.fields.get("content-type") {
        params.push("CONTENT_TYPE", &[media_type]);
    }
    if let Some(length) = request.length {
        params.push("CONTENT_LENGTH", &[length.to_string().as_bytes()]);
    }
    push_connection(&mut params, call, request);
    params.push("GATEWAY_INTERFACE", &[b"CGI/1.1"]);
    // WordPress offers permalinks without `/index.php` only to servers that it knows to rewrite paths.
    params.push("SERVER_SOFTWARE", &[b"microcache (like nginx)"]);
    // PHP that was built with force-cgi-redirect runs nothing without it.
    params.push("REDIRECT_STATUS", &[b"200"]);
    push_fields(&mut params, request);
    params
}

/// Adds the addresses of both sides, and the scheme.
fn push_connection(params: &mut Params, call: &ScriptCall, request: &RequestView<'_>) {
    let is_secure = call.is_secure(request.fields);
    let (scheme, default_port): (&[u8], &[u8]) = if is_secure {
        (b"https", b"443")
    } else {
        (b"http", b"80")
    };
    let (host, port) = split_authority(request.authority);
    // No address that an application may trust stands for an unknown one.
    let client = call.client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    params.push("SERVER_NAME", &[host]);
    params.push("SERVER_PORT", &[port.unwrap_or(default_port)]);
    params.push("SERVER_PROTOCOL", &[b"HTTP/1.1"]);
    params.push("SERVER_ADDR", &[call.server.to_string().as_bytes()]);
    params.push("REMOTE_ADDR", &[client.to_string().as_bytes()]);
    // The port of the visitor is not known behind another proxy.
    params.push("REMOTE_PORT", &[b"0"]);
    params.push("REQUEST_SCHEME", &[scheme]);
    if is_secure {
        params.push("HTTPS", &[b"on"]);
    }
}

/// Adds a variable for each field name. Names with other characters than letters, digits and `-` become none: two of
/// them could become the same one, and an application could not tell them apart.
fn push_fields(params: &mut Params, request: &RequestView<'_>) {
    params.push("HTTP_HOST", &[request.authority]);
    let mut done: Vec<String> = Vec::new();
    for line in request.fields.lines() {
        let Some(variable) = variable(line.name()) else {
            continue;
        };
        if done.contains(&variable) {
            continue;
        }
        let separator: &[u8] = if variable == "HTTP_COOKIE" {
            b"; "
        } else {
            b", "
        };
        let mut value: Vec<&[u8]> = Vec::new();
        let same = request.fields.lines();
        for other in same.filter(|other| other.name().eq_ignore_ascii_case(line.name())) {
            if !value.is_empty() {
                value.push(separator);
            }
            value.push(other.value());
        }
        params.push(&variable, &value);
        done.push(variable);
    }
}

/// Returns the variable of a field.
fn variable(name: &[u8]) -> Option<String> {
    if NO_VARIABLES
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
    {
        return None;
    }
    let mut variable = "HTTP_".to_owned();
    for &byte in name {
        variable.push(match byte {
            b'-' => '_',
            byte if byte.is_ascii_alphanumeric() => byte.to_ascii_uppercase().into(),
            _ => return None,
        });
    }
    Some(variable)
}

/// Splits a host from its port. Brackets of an IPv6 address stay.
fn split_authority(authority: &[u8]) -> (&[u8], Option<&[u8]>) {
    match authority.iter().rposition(|&byte| byte == b':') {
        Some(colon) if !authority[colon..].contains(&b']') => {
            (&authority[..colon], Some(&authority[colon + 1..]))
        }
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use microcache_policy::Scheme;

    use super::*;
    use crate::upstream::php::script::Script;

    fn read(mut bytes: &[u8]) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        while let [name, value, rest @ ..] = bytes {
            assert!(*name < 0x80 && *value < 0x80, "short ones");
            let (pair, rest) = rest.split_at(usize::from(*name) + usize::from(*value));
            let text = String::from_utf8(pair.to_vec()).unwrap();
            let (name, value) = text.split_at((*name).into());
            pairs.push((name.to_owned(), value.to_owned()));
            bytes = rest;
        }
        pairs
    }

    fn of(fields: &str, authority: &str, length: Option<u64>) -> Vec<(String, String)> {
        let call = ScriptCall {
            script: Script::new(Path::new("/srv/www/"), b"/a.php".to_vec(), b"/b c".to_vec()),
            scheme: Scheme::Http,
            client: Some("192.0.2.7".parse().unwrap()),
            server: "10.0.0.1".parse().unwrap(),
        };
        let request = RequestView {
            method: &Method::POST,
            target: b"/a.php/b%20c?d=e?f",
            authority: authority.as_bytes(),
            fields: Fields::new(fields.as_bytes()),
            length,
        };
        read(variables(&call, &request).as_bytes())
    }

    fn check(pairs: &[(String, String)], name: &str, value: Option<&str>) {
        let found: Vec<_> = pairs.iter().filter(|(other, _)| other == name).collect();
        assert!(found.len() < 2, "{name} twice");
        assert_eq!(
            found.first().map(|(_, value)| value.as_str()),
            value,
            "{name}"
        );
    }

    #[test]
    fn variables_name_the_script_and_both_sides() {
        let pairs = of(
            "Content-Type: text/plain\r\nX-Forwarded-Proto: http\r\n",
            "Ex.org:8080",
            Some(5),
        );
        for (name, value) in [
            ("SCRIPT_FILENAME", "/srv/www/a.php"),
            ("SCRIPT_NAME", "/a.php"),
            ("PATH_INFO", "/b c"),
            ("PATH_TRANSLATED", "/srv/www/b c"),
            ("DOCUMENT_ROOT", "/srv/www"),
            ("DOCUMENT_URI", "/a.php/b c"),
            ("REQUEST_URI", "/a.php/b%20c?d=e?f"),
            ("QUERY_STRING", "d=e?f"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_TYPE", "text/plain"),
            ("CONTENT_LENGTH", "5"),
            ("SERVER_NAME", "Ex.org"),
            ("SERVER_PORT", "8080"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_ADDR", "10.0.0.1"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("REMOTE_PORT", "0"),
            ("REQUEST_SCHEME", "http"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "microcache (like nginx)"),
            ("REDIRECT_STATUS", "200"),
            ("HTTP_HOST", "Ex.org:8080"),
        ] {
            check(&pairs, name, Some(value));
        }
        for absent in [
            "HTTPS",
            "HTTP_CONTENT_TYPE",
            "HTTP_CONTENT_LENGTH",
            "HTTP_X_FORWARDED_PROTO",
        ] {
            check(&pairs, absent, None);
        }
        let pairs = of("X-Forwarded-Proto: https\r\n", "[::1]", None);
        for (name, value) in [
            ("HTTPS", Some("on")),
            ("REQUEST_SCHEME", Some("https")),
            ("SERVER_PORT", Some("443")),
            ("SERVER_NAME", Some("[::1]")),
            ("CONTENT_LENGTH", None),
        ] {
            check(&pairs, name, value);
        }
    }

    #[test]
    fn no_field_becomes_the_variable_of_another() {
        let pairs = of(
            "Proxy: http://evil/\r\nX-Foo: 1\r\nX_Foo: 2\r\nX.Foo: 3\r\nx-foo: 4\r\nCookie: a=b\r\ncookie: c=d\r\nHost: evil\r\n",
            "a",
            None,
        );
        check(&pairs, "HTTP_PROXY", None);
        check(&pairs, "HTTP_X_FOO", Some("1, 4"));
        check(&pairs, "HTTP_COOKIE", Some("a=b; c=d"));
        check(&pairs, "HTTP_HOST", Some("a"));
        assert!(!pairs.iter().any(|(name, _)| name.contains('.')));
    }
}
