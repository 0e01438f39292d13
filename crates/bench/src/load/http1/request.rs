//! Request bytes, serialized before the run starts.

use crate::load::settings::Settings;
use crate::load::target::{LoadTarget, TargetUrl};

/// Serialized request of one target.
#[derive(Debug)]
pub(super) struct Http1Request {
    /// `true` if the response has no content (HEAD).
    pub(super) is_head: bool,
    before: Vec<u8>,
    /// URL pattern, if the target has several URLs; the path of a single one is part of `before`.
    many: Option<TargetUrl>,
    after: Vec<u8>,
}

impl Http1Request {
    pub(super) fn new(target: &LoadTarget, settings: &Settings) -> Self {
        let mut before = format!("{} ", target.method).into_bytes();
        let many = (target.url.count() > 1).then(|| target.url.clone());
        if many.is_none() {
            target.url.write_path(0, &mut before);
        }
        Self {
            is_head: target.method == "HEAD",
            before,
            many,
            after: rest(target, settings),
        }
    }

    /// Appends the request for one URL of the target.
    pub(super) fn write(&self, index: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before);
        if let Some(url) = &self.many {
            url.write_path(index, out);
        }
        out.extend_from_slice(&self.after);
    }
}

/// Serializes everything after the path.
fn rest(target: &LoadTarget, settings: &Settings) -> Vec<u8> {
    let mut head = String::from(" HTTP/1.1\r\n");
    let mut add = |name: &str, value: &str| {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    };
    for (name, value) in target.fields(&settings.headers) {
        add(&name, &value);
    }
    if !settings.keep_alive {
        add("Connection", "close");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&target.body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(target: LoadTarget, change: impl FnOnce(&mut Settings), index: u64) -> String {
        let mut settings = Settings::new(vec![target]);
        change(&mut settings);
        let mut out = Vec::new();
        Http1Request::new(&settings.targets[0], &settings).write(index, &mut out);
        String::from_utf8(out).expect("a request is text")
    }

    fn target(url: &str) -> LoadTarget {
        LoadTarget::get(TargetUrl::parse(url).expect("a url"))
    }

    #[test]
    fn a_get_is_as_short_as_can_be() {
        let agent = concat!("microcache-bench/", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            written(target("http://a:81/x"), |_| (), 0),
            format!("GET /x HTTP/1.1\r\nHost: a:81\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n")
        );
    }

    #[test]
    fn each_url_of_a_range_has_its_path() {
        let text = written(target("http://a/[1-9]/x"), |_| (), 4);
        assert!(text.starts_with("GET /5/x HTTP/1.1\r\n"), "{text}");
    }

    #[test]
    fn given_fields_replace_the_usual_ones() {
        let text = written(
            target("http://a/"),
            |settings| {
                settings.keep_alive = false;
                settings.headers = vec![
                    ("host".to_owned(), "b".to_owned()),
                    ("X".to_owned(), "1".to_owned()),
                ];
            },
            0,
        );
        assert!(!text.contains("Host: a"), "{text}");
        assert!(text.contains("\r\nhost: b\r\n"), "{text}");
        assert!(text.contains("\r\nX: 1\r\n"), "{text}");
        assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
    }

    #[test]
    fn a_body_has_a_length_and_a_type() {
        let mut target = target("http://a/");
        target.method = "POST".to_owned();
        target.body = b"a=1".to_vec();
        let text = written(target, |_| (), 0);
        assert!(text.starts_with("POST / "), "{text}");
        assert!(text.contains("\r\nContent-Length: 3\r\n"), "{text}");
        assert!(text.contains("x-www-form-urlencoded"), "{text}");
        assert!(text.ends_with("\r\n\r\na=1"), "{text}");
    }
}
