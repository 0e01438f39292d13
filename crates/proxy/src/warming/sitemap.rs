//! Sitemaps (sitemaps.org, protocol 0.9): XML or lines of text, compressed by gzip or not.
//!
//! The reader knows elements, comments, CDATA sections and the references that XML predefines. Declarations such as
//! `<!DOCTYPE>` are refused, so there is no entity to expand.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// Limit of URLs in a sitemap, and in a job.
pub(super) const MAX_URLS: usize = 50_000;
/// Limit of a sitemap in bytes, compressed or not.
pub(super) const MAX_BYTES: usize = 50 * 1024 * 1024;

/// The content of a sitemap.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sitemap {
    /// The URLs are those of other sitemaps.
    pub(super) is_index: bool,
    pub(super) urls: Vec<String>,
}

/// Reads a sitemap, or returns why it is none.
pub(super) fn read(body: &[u8]) -> Result<Sitemap, &'static str> {
    let mut unpacked = Vec::new();
    let text = if body.starts_with(&[0x1f, 0x8b]) {
        let mut decoder = MultiGzDecoder::new(body).take(MAX_BYTES as u64 + 1);
        let read = decoder.read_to_end(&mut unpacked);
        read.map_err(|_| "its gzip coding is damaged")?;
        &unpacked[..]
    } else {
        body
    };
    if text.len() > MAX_BYTES {
        return Err("it has more than 50 MiB");
    }
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with('<') {
        return read_xml(text);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(Sitemap {
        is_index: false,
        urls: lines.take(MAX_URLS).map(escaped).collect(),
    })
}

fn read_xml(text: &str) -> Result<Sitemap, &'static str> {
    let (mut root, mut urls, mut url, mut rest) = (None, Vec::new(), None::<String>, text);
    while let Some((before, after)) = rest.split_once('<')
        && urls.len() < MAX_URLS
    {
        if let Some(url) = &mut url {
            url.push_str(&resolved(before));
        }
        let end = match after {
            _ if after.starts_with("!--") => "-->",
            _ if after.starts_with("![CDATA[") => "]]>",
            _ => ">",
        };
        let Some((tag, next)) = after.split_once(end) else {
            break;
        };
        rest = next;
        if let Some(content) = tag.strip_prefix("![CDATA[") {
            if let Some(url) = &mut url {
                url.push_str(content);
            }
        } else if tag.starts_with('!') && !tag.starts_with("!--") {
            return Err("it has a declaration such as <!DOCTYPE>");
        } else if !tag.starts_with(['!', '?']) {
            match (tag.split_whitespace().next(), root) {
                (Some("urlset"), None) => root = Some(false),
                (Some("sitemapindex"), None) => root = Some(true),
                (_, None) => return Err("it is neither a sitemap nor a sitemap index"),
                (Some("loc"), _) => url = Some(String::new()),
                (Some("/loc"), _) => urls.extend(url.take().map(|url| escaped(url.trim()))),
                _ => {}
            }
        }
    }
    let is_index = root == Some(true);
    Ok(Sitemap { is_index, urls })
}

/// Replaces the references that need no declaration. Others stay as they are.
fn resolved(text: &str) -> String {
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
    ];
    let ampersand = [("&#38;", "&"), ("&#x26;", "&"), ("&amp;", "&")];
    let all = named.into_iter().chain(ampersand);
    all.fold(text.to_owned(), |text, (name, character)| {
        text.replace(name, character)
    })
}

/// Percent-encodes what is not ASCII, as browsers do.
fn escaped(url: &str) -> String {
    let escape = |byte: u8| match byte {
        0x80.. => format!("%{byte:02X}"),
        _ => char::from(byte).to_string(),
    };
    url.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("in memory");
        encoder.finish().expect("in memory")
    }

    #[test]
    fn urls_are_found_as_sitemaps_write_them() {
        for (inner, expected) in [
            ("", &[][..]),
            ("<url><loc>\n http://a/x \n</loc></url>", &["http://a/x"]),
            ("<loc>http://a/?b&amp;c&#38;d</loc>", &["http://a/?b&c&d"]),
            (
                "<loc >a<![CDATA[?b&c]]></loc ><loc>&xxe;</loc>",
                &["a?b&c", "&xxe;"],
            ),
            ("<loc>http://a/<!-- > -->é</loc>", &["http://a/%C3%A9"]),
            ("<image:loc>i</image:loc><locality>l</locality>", &[]),
            ("<loc>http://a/1</loc><loc>http://a/2", &["http://a/1"]),
        ] {
            let text = format!(
                "\u{feff}<?xml version=\"1.0\"?>\n<!-- <loc>no</loc> --><urlset a='b'>{inner}</urlset>"
            );
            for text in [text.as_bytes(), &compressed(text.as_bytes())] {
                let found = read(text).expect(inner);
                assert_eq!(found.urls, expected, "{inner}");
                assert!(!found.is_index);
            }
        }
        assert!(
            read(b"<sitemapindex><loc>a</loc></sitemapindex>")
                .expect("one")
                .is_index
        );
        assert_eq!(
            read(b"http://a/1\r\n\nhttp://a/2").expect("lines").urls,
            ["http://a/1", "http://a/2"]
        );
    }

    #[test]
    fn hostile_sitemaps_are_refused_or_cut() {
        let bomb = compressed(&vec![b' '; MAX_BYTES + 1]);
        for (text, expected) in [
            (&b"<html><loc>http://a/</loc>"[..], "neither"),
            (
                b"<!DOCTYPE urlset [<!ENTITY a \"aaaa\">]><urlset>",
                "declaration",
            ),
            (b"\xff\xfe<\0", "UTF-8"),
            (&bomb, "50 MiB"),
            (&bomb[..1000], "damaged"),
        ] {
            assert!(read(text).expect_err(expected).contains(expected));
        }
        let many = format!("<urlset>{}", "<loc>http://a/</loc>".repeat(MAX_URLS + 9));
        assert_eq!(read(many.as_bytes()).expect("cut").urls.len(), MAX_URLS);
        assert_eq!(
            read(b"<urlset><!-- <loc>").expect("none"),
            Sitemap::default()
        );
    }
}
