//! The entity tag of a composed page.

use xxhash_rust::xxh3::Xxh3;

/// The entity tag of a page whose parts are known, in the making. It is weak: encodings of the page have the same.
///
/// The digest of the texts is that of the stored page and need not be computed for each visitor; lengths tell where the
/// fragments stand among them.
pub struct ComposedTag {
    page: Xxh3,
    /// Bytes of text since the last fragment.
    text: u64,
}

impl ComposedTag {
    /// The tag of a page whose texts have this digest.
    pub fn new(texts: u64) -> Self {
        let mut page = Xxh3::new();
        page.update(&texts.to_le_bytes());
        Self { page, text: 0 }
    }

    /// Adds a text of this length.
    pub const fn add_text(&mut self, length: usize) {
        self.text += length as u64;
    }

    /// Adds a fragment.
    pub fn add_fragment(&mut self, fragment: &[u8]) {
        for length in [std::mem::take(&mut self.text), fragment.len() as u64] {
            self.page.update(&length.to_le_bytes());
        }
        self.page.update(fragment);
    }

    /// Returns the tag.
    pub fn written(&self) -> String {
        format!("W/\"mc-{:016x}\"", self.page.digest())
    }
}

/// Returns the digest of the texts of a page. It does not depend on the places at which they are divided.
pub fn text_digest<'a>(texts: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut digest = Xxh3::new();
    texts.for_each(|text| digest.update(text));
    digest.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tag of a page with fragments in square brackets.
    fn tag(parts: &[&str]) -> String {
        let texts = parts.iter().filter(|part| !part.starts_with('['));
        let mut tag = ComposedTag::new(text_digest(texts.map(|text| text.as_bytes())));
        for part in parts {
            match part.strip_prefix('[') {
                Some(fragment) => tag.add_fragment(fragment.as_bytes()),
                None => tag.add_text(part.len()),
            }
        }
        tag.written()
    }

    #[test]
    fn pages_have_the_same_tag_however_their_texts_are_divided() {
        assert_eq!(tag(&["ab", "[c", "de"]), tag(&["a", "b", "[c", "d", "e"]));
        assert_eq!(tag(&["ab", "[c"]), tag(&["ab", "", "[c", ""]));
    }

    #[test]
    fn pages_that_differ_have_other_tags() {
        let pages: &[&[&str]] = &[
            &["ab", "[c", "de"],
            &["ab", "[c", "df"],
            &["ab", "[d", "de"],
            &["a", "[c", "bde"],
            &["ab", "[", "[c", "de"],
            &["ab", "[c", "[", "de"],
            &["abcde"],
        ];
        let mut tags: Vec<_> = pages.iter().map(|page| tag(page)).collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), pages.len());
    }
}
