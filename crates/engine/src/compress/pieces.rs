//! Gzip for pages that are composed for each client.
//!
//! The texts of a page are compressed once, each by itself. What is put between them is sent as it is, in stored blocks of
//! deflate (RFC 1951 §3.2.4): it is never compressed together with anything, so the length of the whole reveals nothing
//! but its length (BREACH), and it costs a checksum.

use std::io::{self, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use microcache_policy::edge::{PagePiece, PagePieces};
use zlib_rs::crc32::{crc32, crc32_combine_gen, crc32_combine_op};

use crate::body::Body;
use crate::message::Response;

/// The level of compression.
const LEVEL: u32 = 6;
/// The head of every page: no name, no time, an unknown system (RFC 1952 §2.3).
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The last block: empty, with fixed codes.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// The bytes behind the last part: [`LAST_BLOCK`], checksum and length.
const END: usize = LAST_BLOCK.len() + 8;
/// The most bytes of a stored block, and the bytes in front of them.
const BLOCK: usize = u16::MAX as usize;
const BLOCK_HEAD: usize = 5;
/// The bytes of an entry of the index.
const ENTRY: usize = 16;

/// The compressed texts of a page, in one block of memory: an index, the head of a gzip file, and the texts.
#[derive(Clone, Debug)]
pub(super) struct GzipPieces(Bytes);

/// An entry of the index.
struct TextEntry {
    /// The end of the compressed text, from the beginning of the block.
    end: usize,
    /// The length of the text.
    length: u32,
    checksum: u32,
    /// The operator that appends a text of this length to a checksum.
    appends: u32,
}

impl GzipPieces {
    /// Compresses the texts of a page; empty if it has none.
    pub(super) fn encode(body: &[u8], pieces: &PagePieces) -> io::Result<Vec<u8>> {
        let texts = || {
            pieces.parts().filter_map(|piece| match piece {
                PagePiece::Text(range) => Some(&body[range.clone()]),
                PagePiece::Hole(_) => None,
            })
        };
        if texts().next().is_none() {
            return Ok(Vec::new());
        }
        let index = size_of::<u32>() + texts().count() * ENTRY;
        let mut block = vec![0; index];
        block.extend_from_slice(&HEAD);
        let mut entries = Vec::with_capacity(index);
        entries.put_u32(narrow(texts().count())?);
        for text in texts() {
            // Each has its own window: distances into another text would count the bytes between the two.
            let mut encoder = DeflateEncoder::new(block, Compression::new(LEVEL));
            encoder.write_all(text)?;
            encoder.flush()?;
            block = std::mem::take(encoder.get_mut());
            entries.put_u32(narrow(block.len())?);
            entries.put_u32(narrow(text.len())?);
            entries.put_u32(crc32(0, text));
            entries.put_u32(crc32_combine_gen(text.len() as u64));
        }
        block[..index].copy_from_slice(&entries);
        Ok(block)
    }

    /// Number of texts.
    fn count(&self) -> usize {
        (&self.0[..]).try_get_u32().unwrap_or_default() as usize
    }

    /// The start of the head and the compressed texts.
    fn start(&self) -> usize {
        size_of::<u32>() + self.count() * ENTRY
    }

    fn entry(&self, number: usize) -> Option<TextEntry> {
        let at = size_of::<u32>() + number * ENTRY;
        let mut entry = self.0.get(at..at + ENTRY)?;
        (number < self.count()).then(|| TextEntry {
            end: entry.get_u32() as usize,
            length: entry.get_u32(),
            checksum: entry.get_u32(),
            appends: entry.get_u32(),
        })
    }
}

fn narrow(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// The length of content in stored blocks.
const fn stored_length(content: usize) -> usize {
    content + content.div_ceil(BLOCK) * BLOCK_HEAD
}

/// Writes a composed page: its texts and the content of its holes in their order, and the end.
#[derive(Debug)]
pub struct GzipPage {
    pieces: GzipPieces,
    /// Number of texts written.
    texts: usize,
    /// The bytes of the block that have been written, up to here.
    at: usize,
    checksum: u32,
    /// The length of the page, modulo 2^32.
    length: u32,
}

impl GzipPage {
    /// Begins a stored page that is to be sent in gzip.
    pub fn of(page: &Response) -> Option<Self> {
        let Body::Stored(hit) = &page.body else {
            return None;
        };
        let is_text = |piece: &&PagePiece| matches!(piece, PagePiece::Text(_));
        let texts = hit.pieces()?.parts().filter(is_text).count();
        let known = hit.known_encoded();
        let encoded = known.filter(|_| page.cache_status.coding.is_some())?;
        let pieces = GzipPieces(encoded.bodies().pieces()?.clone());
        (pieces.count() == texts && texts > 0).then(|| Self::new(pieces))
    }

    fn new(pieces: GzipPieces) -> Self {
        Self {
            texts: 0,
            at: pieces.start(),
            checksum: 0,
            length: 0,
            pieces,
        }
    }

    /// The length of the whole page with content of these lengths in its holes.
    pub fn whole_length(&self, holes: impl Iterator<Item = usize>) -> usize {
        let stored = holes.map(stored_length);
        self.pieces.0.len() - self.pieces.start() + stored.sum::<usize>() + END
    }

    /// Writes the next text. Nothing is copied.
    pub fn text(&mut self) -> Bytes {
        let Some(text) = self.pieces.entry(self.texts) else {
            return Bytes::new();
        };
        self.texts += 1;
        self.checksum = crc32_combine_op(self.checksum, text.checksum, text.appends);
        self.length = self.length.wrapping_add(text.length);
        self.block_up_to(text.end)
    }

    /// Writes the content of a hole.
    pub fn hole(&mut self, content: &[u8]) -> Bytes {
        if content.is_empty() {
            return Bytes::new();
        }
        self.checksum = crc32(self.checksum, content);
        self.length = self.length.wrapping_add(content.len() as u32);
        let head = self.head();
        let mut out = BytesMut::with_capacity(head.len() + stored_length(content.len()));
        out.put(head);
        for part in content.chunks(BLOCK) {
            let length = part.len() as u16;
            out.put_u8(0);
            out.put_u16_le(length);
            out.put_u16_le(!length);
            out.put(part);
        }
        out.freeze()
    }

    /// Writes the end.
    pub fn end(&mut self) -> Bytes {
        let head = self.head();
        let mut out = BytesMut::with_capacity(head.len() + END);
        out.put(head);
        out.put(&LAST_BLOCK[..]);
        out.put_u32_le(self.checksum);
        out.put_u32_le(self.length);
        out.freeze()
    }

    /// The head, unless it has been written.
    fn head(&mut self) -> Bytes {
        let end = self.pieces.start() + HEAD.len();
        self.block_up_to(self.at.max(end))
    }

    /// The next bytes of the block.
    fn block_up_to(&mut self, end: usize) -> Bytes {
        let start = std::mem::replace(&mut self.at, end);
        self.pieces.0.slice(start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use flate2::read::GzDecoder;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const HOLE: &str = "<esi:include src=\"/_fragment\"/>";

    fn pieces(page: &str) -> GzipPieces {
        let divided = PagePieces::of(page.as_bytes()).expect("it has tags");
        let block = GzipPieces::encode(page.as_bytes(), &divided);
        GzipPieces(block.expect("nothing can fail").into())
    }

    /// The composed page: plain, and in gzip.
    fn composed(page: &str, mut contents: impl Iterator<Item = Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
        let divided = PagePieces::of(page.as_bytes()).expect("it has tags");
        let (mut plain, mut coded) = (Vec::new(), Vec::new());
        let (mut writer, mut lengths) = (GzipPage::new(pieces(page)), Vec::new());
        for piece in divided.parts() {
            match piece {
                PagePiece::Text(range) => {
                    plain.extend_from_slice(&page.as_bytes()[range.clone()]);
                    coded.extend(writer.text());
                }
                PagePiece::Hole(_) => {
                    let content = contents.next().unwrap_or_default();
                    plain.extend_from_slice(&content);
                    coded.extend(writer.hole(&content));
                    lengths.push(content.len());
                }
            }
        }
        coded.extend(writer.end());
        assert_eq!(coded.len(), writer.whole_length(lengths.into_iter()));
        (plain, coded)
    }

    fn decoded(coded: &[u8]) -> Vec<u8> {
        let (mut plain, mut decoder) = (Vec::new(), GzDecoder::new(coded));
        decoder.read_to_end(&mut plain).expect("it is gzip");
        assert!(decoder.into_inner().is_empty(), "nothing follows");
        plain
    }

    fn text(bytes: usize) -> String {
        let rows = (0_usize..).map(|row| format!("<p>row {row}: {}</p>\n", row * row % 1009));
        let mut text = String::new();
        rows.take_while(|row| {
            text.push_str(row);
            text.len() < bytes
        })
        .for_each(drop);
        text
    }

    #[test]
    fn texts_are_compressed_and_the_rest_is_stored() {
        let page = format!("{}{HOLE}{}", text(40_000), text(40_000));
        let content = microcache_testkit::noise(10_000, 1);
        let (plain, coded) = composed(&page, [content.clone()].into_iter());
        assert!(decoded(&coded) == plain);
        assert!(coded.windows(content.len()).any(|part| part == content));
        assert!(coded.len() - content.len() < 80_000 / 4, "{}", coded.len());
    }

    #[test]
    fn what_programs_decode_is_the_page() {
        let page = format!("{HOLE}{}{HOLE}{HOLE}{}{HOLE}", text(100_000), text(10));
        let contents = [0, BLOCK, BLOCK + 1, 3 * BLOCK]
            .map(|length| microcache_testkit::noise(length, length as u64));
        let (plain, coded) = composed(&page, contents.into_iter());
        let python = "import sys, zlib; from sys import stdin, stdout; \
            stdout.buffer.write(zlib.decompress(stdin.buffer.read(), 31))";
        for command in [&["gzip", "-dc"][..], &["python3", "-c", python]] {
            let child = Command::new(command[0])
                .args(&command[1..])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let mut child = child.expect("it is installed");
            let (mut input, whole) = (child.stdin.take().expect("a pipe"), coded.clone());
            let writing = std::thread::spawn(move || input.write_all(&whole));
            let output = child.wait_with_output().expect("it ends");
            writing.join().expect("no panic").expect("it reads all");
            assert!(output.status.success(), "{command:?}");
            assert!(output.stdout == plain, "{command:?}");
        }
    }

    #[test]
    fn a_page_without_texts_is_not_compressed() {
        let divided = PagePieces::of(HOLE.as_bytes()).expect("it has a tag");
        let block = GzipPieces::encode(HOLE.as_bytes(), &divided);
        assert_eq!(block.expect("nothing can fail"), []);
    }

    fn page() -> impl Strategy<Value = String> {
        let text = prop_oneof![
            Just(HOLE.to_owned()),
            Just("<esi:remove>a</esi:remove>".to_owned()),
            "[a-c\u{0}é ]{0,60}",
            (0..90_000_usize).prop_map(text),
        ];
        vec(text, 0..8).prop_map(|texts| format!("{}{HOLE}.", texts.concat()))
    }

    fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let long = (BLOCK - 2..2 * BLOCK + 3).prop_map(|length| vec![b'x'; length]);
        vec(prop_oneof![4 => vec(any::<u8>(), 0..300), 1 => long], 8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Also with contents that repeat the page's texts, or break off a character.
        #[test]
        fn a_decoded_page_is_the_composed_one(page in page(), contents in contents()) {
            let (plain, coded) = composed(&page, contents.into_iter());
            prop_assert!(decoded(&coded) == plain);
        }

        /// An attacker learns the lengths of what was put in, and nothing else.
        #[test]
        fn the_length_depends_on_lengths_alone(page in page(), contents in contents(), seed: u64) {
            let others: Vec<_> = contents
                .iter()
                .map(|content| microcache_testkit::noise(content.len(), seed))
                .collect();
            let guess = contents.iter().map(|content| {
                page.bytes().cycle().take(content.len()).collect()
            });
            let guessed = composed(&page, guess).1.len();
            prop_assert_eq!(composed(&page, others.into_iter()).1.len(), guessed);
            prop_assert_eq!(composed(&page, contents.into_iter()).1.len(), guessed);
        }
    }
}
