//! Builder of `Link: <…>; rel="monitor"` (RFC 5989), the URL of a resource's subscription.
//!
//! The URL carries the version of the response, so that no change between the request and the subscription is
//! missed.

use microcache_policy::percent;

use crate::name::MAX_NAME;
use crate::paths::WATCH_PATH;

/// The validator of a response.
#[derive(Clone, Copy, Debug)]
pub enum MonitorValidator<'a> {
    /// The version of a document.
    Version(&'a str),
    /// The entity tag of a page.
    Tag(&'a [u8]),
    /// None.
    Unknown,
}

/// Returns the `Link` value for a path and query; `None` if they cannot be subscribed to.
pub fn monitor_link(target: &[u8], validator: MonitorValidator<'_>) -> Option<String> {
    // A star would be a pattern.
    if target.len() > MAX_NAME || target.contains(&b'*') {
        return None;
    }
    let mut link = String::with_capacity(WATCH_PATH.len() + 2 * target.len() + 64);
    link.push('<');
    link.push_str(WATCH_PATH);
    link.push_str("?url=");
    write(&mut link, target);
    match validator {
        MonitorValidator::Version(version) => {
            link.push_str("&version=");
            write(&mut link, version.as_bytes());
        }
        MonitorValidator::Tag(tag) => {
            link.push_str("&etag=");
            write(&mut link, tag);
        }
        MonitorValidator::Unknown => {}
    }
    link.push_str(">; rel=\"monitor\"");
    Some(link)
}

/// Percent-encodes a query value.
fn write(link: &mut String, text: &[u8]) {
    percent::encode(text, b"/", link);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_names_the_last_known_version() {
        for (target, validator, expected) in [
            (
                "/live/a%20b",
                MonitorValidator::Version("1f.7"),
                "</.well-known/microcache/watch?url=/live/a%2520b&version=1f.7>; rel=\"monitor\"",
            ),
            (
                "/news/?a=1&b=<x>",
                MonitorValidator::Tag(b"W/\"a,b\""),
                "</.well-known/microcache/watch?url=/news/%3Fa%3D1%26b%3D%3Cx%3E&etag=W/%22a%2Cb%22>; rel=\"monitor\"",
            ),
            (
                "/",
                MonitorValidator::Unknown,
                "</.well-known/microcache/watch?url=/>; rel=\"monitor\"",
            ),
        ] {
            let link = monitor_link(target.as_bytes(), validator);
            assert_eq!(link.as_deref(), Some(expected), "{target}");
        }
        assert_eq!(monitor_link(b"/a*", MonitorValidator::Unknown), None);
        let long = vec![b'a'; MAX_NAME + 1];
        assert_eq!(monitor_link(&long, MonitorValidator::Unknown), None);
    }
}
