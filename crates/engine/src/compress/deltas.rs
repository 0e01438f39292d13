//! Deltas of a page against an earlier version that the client has (RFC 9842 §4, §5).

use std::io::{self, Read, Write};

use brotli::enc::{BrotliEncoderParams, StandardAlloc};
use brotli::{Decompressor, IoReaderWrapper, IoWriterWrapper};
use microcache_policy::DictionaryCoding;
use microcache_policy::dictionaries::DictionaryHash;
use sha2::{Digest, Sha256};
use zstd::stream::write::Encoder;

/// The zstd level for deltas; low, as every version is compared with several others.
const ZSTD: i32 = 3;
const BROTLI: i32 = 5;
/// Bytes read and written at a time.
const PIECE: usize = 4096;

/// The hash that names a dictionary.
pub(super) fn hash(dictionary: &[u8]) -> DictionaryHash {
    Sha256::digest(dictionary).into()
}

/// Encodes a body against a dictionary; empty if it saves less than three quarters, where plain
/// codings do as well.
pub(super) fn delta(
    coding: DictionaryCoding,
    dictionary: &[u8],
    hash: &DictionaryHash,
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(coding.magic());
    out.extend_from_slice(hash);
    let encoded = match coding {
        DictionaryCoding::Dcb => brotli(out, dictionary, body),
        DictionaryCoding::Dcz => zstd(out, dictionary, body),
    }?;
    let is_worth_it = encoded.len() <= body.len() / 4;
    Ok(if is_worth_it { encoded } else { Vec::new() })
}

/// The window in bits that covers dictionary and body: bounded by the largest dictionary, and far
/// below the limit of decoders.
fn window(dictionary: &[u8], body: &[u8]) -> u32 {
    (dictionary.len() + body.len() + 16).ilog2() + 1
}

fn zstd(out: Vec<u8>, dictionary: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
    // A raw dictionary, even if it begins with the magic number of a trained one.
    let mut encoder = Encoder::with_ref_prefix(out, ZSTD, dictionary)?;
    encoder.window_log(window(dictionary, body).clamp(10, 23))?;
    encoder.set_pledged_src_size(Some(body.len() as u64))?;
    encoder.include_contentsize(true)?;
    encoder.write_all(body)?;
    encoder.finish()
}

fn brotli(mut out: Vec<u8>, dictionary: &[u8], body: &[u8]) -> io::Result<Vec<u8>> {
    let head = out.len();
    let window = window(dictionary, body).clamp(16, 24).cast_signed();
    let params = BrotliEncoderParams {
        quality: BROTLI,
        lgwin: window,
        // One block for the whole body: a copy continued across blocks may leave the dictionary.
        lgblock: window,
        size_hint: body.len(),
        ..BrotliEncoderParams::default()
    };
    brotli::BrotliCompressCustomIoCustomDict(
        &mut IoReaderWrapper(&mut &*body),
        &mut IoWriterWrapper(&mut out),
        &mut [0; PIECE],
        &mut [0; PIECE],
        &params,
        StandardAlloc::default(),
        &mut |_, _, _, _| (),
        dictionary,
        io::Error::from(io::ErrorKind::UnexpectedEof),
    )?;
    // Decoders reject a copy that runs from the end of the dictionary into the body, which would
    // break the page for every client with this dictionary. The result is therefore decoded before
    // use.
    let mut read_back = Vec::with_capacity(body.len());
    Decompressor::new_with_custom_dict(&out[head..], PIECE, dictionary.to_vec().into())
        .read_to_end(&mut read_back)?;
    if read_back == body {
        Ok(out)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use DictionaryCoding::{Dcb, Dcz};

    use super::*;

    fn page(number: usize) -> String {
        let row = |row: usize| format!("<p>row {row}: {}</p>", row * row * 7919 % 10_007);
        let rows: Vec<String> = (0..3000).map(row).collect();
        format!("<h1>{number} visitors</h1>{}", rows.join("\n"))
    }

    fn decoded(coding: DictionaryCoding, dictionary: &[u8], encoded: &[u8]) -> Vec<u8> {
        let encoded = &encoded[coding.magic().len() + 32..];
        let mut out = Vec::new();
        let read = match coding {
            Dcb => Decompressor::new_with_custom_dict(encoded, 100, dictionary.to_vec().into())
                .read_to_end(&mut out),
            Dcz => zstd::stream::read::Decoder::with_ref_prefix(encoded, dictionary)
                .and_then(|mut decoder| decoder.read_to_end(&mut out)),
        };
        read.expect("it can be decoded");
        out
    }

    #[test]
    fn a_small_change_is_a_small_answer() {
        let (old, new) = (page(1), page(2));
        let name = hash(old.as_bytes());
        for coding in DictionaryCoding::ALL {
            let encoded = delta(coding, old.as_bytes(), &name, new.as_bytes());
            let encoded = encoded.expect("nothing can fail");
            assert!((37..400).contains(&encoded.len()), "{coding:?}");
            let magic = coding.magic();
            assert!(encoded.starts_with(magic));
            assert_eq!(encoded[magic.len()..magic.len() + 32], name);
            assert!(decoded(coding, old.as_bytes(), &encoded) == new.as_bytes());
        }
    }

    #[test]
    fn bodies_with_little_in_common_are_not_delta_encoded() {
        let noise: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(167) ^ 0x5a).collect();
        for coding in DictionaryCoding::ALL {
            for (old, new) in [(&b"abc"[..], &noise[..]), (b"", b""), (b"", b"x")] {
                let encoded = delta(coding, old, &hash(old), new);
                assert!(encoded.expect("nothing can fail").is_empty(), "{coding:?}");
            }
        }
    }

    #[test]
    fn a_dictionary_may_be_any_bytes() {
        // As one of the library's; as the beginning of what follows; as large as there may be.
        let library = [&[0x37, 0xa4, 0x30, 0xec][..], page(1).as_bytes()].concat();
        let run = vec![b'a'; 5000];
        let large = page(1).repeat(5).as_bytes()[..256 * 1024].to_vec();
        let new = page(2);
        for coding in DictionaryCoding::ALL {
            for (old, new) in [
                (&library, new.as_bytes()),
                (&run, &run[..4000]),
                (&large, &large[1000..]),
                (&large, &large[..]),
            ] {
                let encoded = delta(coding, old, &hash(old), new).expect("nothing can fail");
                assert!(!encoded.is_empty() && encoded.len() < new.len() / 4);
                assert!(decoded(coding, old, &encoded) == new, "{coding:?}");
            }
        }
    }

    #[test]
    fn hashes_are_sha_256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf], "{expected}");
    }
}
