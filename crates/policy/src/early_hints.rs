//! Early hints (RFC 8297): the links of a stored page that browsers may follow while another response for it is awaited.

use crate::fields::{Fields, FieldsBuf, split_list};
use crate::known_name::names;

/// Maximum length of the links together, in bytes.
const MAX_LENGTH: usize = 1024;

/// Returns the links of a stored page that are sent before another response of its URL, a line for each: `preload`,
/// `modulepreload` and `preconnect`. The first two lead to the page's own host; what the browser fetches from others is for
/// the page itself to say. Links with a nonce are for one response.
pub fn early_hints(page: Fields<'_>, host: &[u8]) -> FieldsBuf {
    let mut hints = FieldsBuf::new();
    let mut left = MAX_LENGTH;
    for link in page.values(names::LINK).flat_map(split_list) {
        if link.len() <= left && is_hint(link, host) {
            left -= link.len();
            hints.push("Link", link);
        }
    }
    hints
}

fn is_hint(link: &[u8], host: &[u8]) -> bool {
    let Some(end) = link.iter().position(|&byte| byte == b'>') else {
        return false;
    };
    let (Some(target), parameters) = (link[..end].strip_prefix(b"<"), &link[end + 1..]) else {
        return false;
    };
    // Browsers read a backslash as a slash, and drop tabs.
    if !target.iter().all(u8::is_ascii_graphic) || link.contains(&b'\\') {
        return false;
    }
    let mut is_quoted = false;
    let parameters = parameters.split(|&byte| {
        is_quoted ^= byte == b'"';
        byte == b';' && !is_quoted
    });
    let mut relation = None;
    for parameter in parameters {
        let mut parts = parameter.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"nonce") || name.eq_ignore_ascii_case(b"anchor") {
            return false;
        }
        if name.eq_ignore_ascii_case(b"rel") {
            let value = parts.next().unwrap_or_default().trim_ascii();
            // The first one counts (RFC 8288 §3.3).
            relation.get_or_insert(value);
        }
    }
    let is = |name: &[u8]| {
        let words = relation.unwrap_or_default();
        let mut words = words.split(|byte| b" \t\"".contains(byte));
        words.any(|word| word.eq_ignore_ascii_case(name))
    };
    if is(b"preload") || is(b"modulepreload") {
        is_own(target, host)
    } else {
        is(b"preconnect")
    }
}

/// Returns true for a target on this host: a path, or a URL with the host.
fn is_own(target: &[u8], host: &[u8]) -> bool {
    let before = |bytes: &[u8]| {
        bytes
            .iter()
            .take_while(|byte| !b"/?#".contains(byte))
            .count()
    };
    for scheme in [&b"https://"[..], b"http://"] {
        let start = target.get(..scheme.len());
        if start.is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
            let rest = &target[scheme.len()..];
            return rest[..before(rest)].eq_ignore_ascii_case(host);
        }
    }
    let is_relative = !target[..before(target)].contains(&b':');
    is_relative && !target.is_empty() && !target.starts_with(b"//")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    fn hints(page: &str) -> Vec<String> {
        let page = fields(page);
        let hints = early_hints(page.fields(), b"shop.example");
        let links = hints.fields();
        links
            .all("link")
            .map(|link| String::from_utf8_lossy(link).into_owned())
            .collect()
    }

    #[test]
    fn links_that_help_every_visitor_are_hints() {
        for link in [
            "</a.css>; rel=preload; as=style",
            "<a.css>;rel=\"preload\"",
            "</f.woff2>; as=font; REL=Preload; crossorigin",
            "</a.js>; rel=modulepreload",
            "</a.css?x=a:b>; rel=\"stylesheet preload\"",
            "<https://shop.example/a.css>; rel=preload; as=style",
            "<HTTP://Shop.Example>; rel=preload",
            "<https://fonts.example>; rel=preconnect",
            "<//fonts.example>; rel=preconnect; crossorigin",
            "</i.png>; rel=preload; imagesrcset=\"/i.png 1x, /j.png 2x\"; as=image",
        ] {
            assert_eq!(hints(&format!("Link: {link}")), [link]);
        }
        let two = "Link: </a>; rel=preload, </next>; rel=next\nX: y\nLink: </b>; rel=preload";
        assert_eq!(hints(two), ["</a>; rel=preload", "</b>; rel=preload"]);
    }

    #[test]
    fn others_are_not() {
        for link in [
            "",
            "/a.css; rel=preload",
            "</a.css",
            "</a.css>",
            "</a.css>; rel=stylesheet",
            "</a.css>; rel=next; rel=preload",
            "</a.css>; title=\"; rel=preload\"",
            "</a.css>; rel=prefetch",
            "</a.js>; rel=preload; nonce=abc",
            "</a.js>; rel=preload; Nonce = \"abc\"",
            "</a.js>; rel=preload; anchor=\"/other\"",
            "<>; rel=preload",
            "<//cdn.example/a.js>; rel=preload",
            "</\\cdn.example/a.js>; rel=preload",
            "</\t/cdn.example/a.js>; rel=preload",
            "<https://cdn.example/a.js>; rel=modulepreload",
            "<https://cdn.example/a.js>; rel=\"preconnect preload\"",
            "<https://shop.example:8443/a.js>; rel=preload",
            "<https://shop.example@cdn.example/a.js>; rel=preload",
            "<data:text/css,a>; rel=preload",
        ] {
            assert_eq!(hints(&format!("Link: {link}")), [""; 0], "{link}");
        }
    }

    #[test]
    fn they_are_bounded() {
        let link = |length: usize| format!("</{}>; rel=preload", "x".repeat(length - 16));
        let lines = format!("Link: {}, {}\nLink: {}", link(600), link(500), link(424));
        assert_eq!(hints(&lines), [link(600), link(424)]);
    }
}
