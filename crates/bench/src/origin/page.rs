//! Content of a page: of exact length, and reproducible for a URL and version.

use std::fmt::Write;

use super::url_hash::{HashPurpose, url_hash};

/// Version text of an unchanging page.
const NEVER_CHANGES: &str = "A page that never changes";

const ALPHABET: &[u8; 37] = b"abcdefghijklmnopqrstuvwxyz0123456789 ";

/// Page whose content is generated on demand.
#[derive(Debug)]
pub(super) struct GeneratedPage {
    opening: String,
    closing: &'static str,
    length: u64,
    /// Start of the filler in the alphabet, so that URLs differ in content.
    shift: u64,
}

impl GeneratedPage {
    /// Creates a page of `length` bytes. It starts with the URL and the version, followed by the echoed
    /// request fields.
    pub(super) fn new(
        url: &str,
        version: Option<&str>,
        echo: Option<&str>,
        content_type: &str,
        length: u64,
    ) -> Self {
        let (opening, closing) = if content_type.contains("json") {
            json(url, version, echo)
        } else if content_type.contains("html") {
            html(url, version, echo)
        } else {
            (text(url, version, echo), "\n")
        };
        let frame = (opening.len() + closing.len()) as u64;
        let (opening, closing) = if frame <= length {
            (opening, closing)
        } else {
            (String::new(), "")
        };
        Self {
            opening,
            closing,
            length,
            shift: url_hash(url, HashPurpose::Text) % ALPHABET.len() as u64,
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the bytes from offset `from` up to `to`.
    pub(super) fn piece(&self, from: u64, to: u64) -> Vec<u8> {
        let to = to.min(self.length);
        let opened = self.opening.len() as u64;
        let closes = self.length - self.closing.len() as u64;
        let mut piece = Vec::with_capacity(to.saturating_sub(from) as usize);
        let part = |text: &str, from: u64, to: u64| {
            let bytes = text.as_bytes();
            bytes[(from as usize).min(bytes.len())..(to as usize).min(bytes.len())].to_vec()
        };
        piece.extend(part(&self.opening, from, to));
        for at in from.max(opened)..to.min(closes) {
            piece.push(ALPHABET[((at + self.shift) % ALPHABET.len() as u64) as usize]);
        }
        piece.extend(part(
            self.closing,
            from.saturating_sub(closes),
            to.saturating_sub(closes),
        ));
        piece
    }
}

fn html(url: &str, version: Option<&str>, echo: Option<&str>) -> (String, &'static str) {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let url = escaped(url);
    let version = version.unwrap_or(NEVER_CHANGES);
    let mut opening =
        format!("<!doctype html>\n<title>{url}</title>\n<h1>{url}</h1>\n<p>{version}.</p>\n");
    if let Some(echo) = echo {
        let _ = writeln!(opening, "<p>{}</p>", escaped(echo));
    }
    (opening + "<p>", "</p>\n")
}

fn json(url: &str, version: Option<&str>, echo: Option<&str>) -> (String, &'static str) {
    let value = |text: Option<&str>| serde_json::Value::from(text);
    let (url, version) = (value(Some(url)), value(version));
    let mut opening = format!("{{\"url\":{url},\"version\":{version},");
    if echo.is_some() {
        let _ = write!(opening, "\"request\":{},", value(echo));
    }
    (opening + "\"text\":\"", "\"}\n")
}

fn text(url: &str, version: Option<&str>, echo: Option<&str>) -> String {
    let mut opening = format!("{url}\n{}\n", version.unwrap_or(NEVER_CHANGES));
    if let Some(echo) = echo {
        let _ = writeln!(opening, "{echo}");
    }
    opening
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_length_in_pieces_of_any_size() {
        for kind in ["text/html", "application/json", "text/plain"] {
            for length in [0, 1, 50, 100, 1000, 70_000] {
                let page =
                    GeneratedPage::new("/a?b&c=<d>", Some("Render 7"), Some("a: b"), kind, length);
                let whole = page.piece(0, length);
                assert_eq!(whole.len() as u64, length, "{kind}");
                let pieces: Vec<u8> = (0..length)
                    .step_by(33)
                    .flat_map(|from| page.piece(from, from + 33))
                    .collect();
                assert_eq!(pieces, whole, "{kind} of {length}");
            }
        }
    }

    #[test]
    fn json_is_valid_and_html_shows_the_version() {
        let page = GeneratedPage::new(
            "/\"a\"",
            Some("Render 7"),
            Some("a: \"b\""),
            "application/json",
            5000,
        );
        let value: serde_json::Value =
            serde_json::from_slice(&page.piece(0, 5000)).expect("it is JSON");
        assert_eq!(
            (&value["url"], &value["version"], &value["request"]),
            (&"/\"a\"".into(), &"Render 7".into(), &"a: \"b\"".into())
        );
        let page = GeneratedPage::new("/", Some("Render 7"), Some("a: <b>"), "text/html", 5000);
        let text = String::from_utf8(page.piece(0, 5000)).expect("it is text");
        assert!(
            text.contains("<p>Render 7.</p>\n<p>a: &lt;b></p>\n<p>") && text.ends_with("</p>\n"),
            "{text}"
        );
    }
}
