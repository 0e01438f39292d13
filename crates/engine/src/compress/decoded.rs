//! Decoding of stored bodies, within a size limit.

use std::io::{self, Read};

/// The largest zstd window accepted, in bits: the limit of browsers (RFC 9659).
const ZSTD_WINDOW: u32 = 23;

/// Decodes a body with this `Content-Encoding`. `None` if it is longer than `most` bytes decoded,
/// cannot be decoded, or has an unsupported coding.
pub(crate) fn decoded(coding: Option<&[u8]>, body: &[u8], most: usize) -> Option<Vec<u8>> {
    let coding = coding.map(|it| it.trim_ascii().to_ascii_lowercase());
    let read = match coding.as_deref() {
        None | Some(b"" | b"identity") => (body.len() <= most).then(|| body.to_vec())?,
        Some(b"gzip" | b"x-gzip") => all_of(flate2::read::MultiGzDecoder::new(body), most)?,
        Some(b"br") => all_of(brotli::Decompressor::new(body, 4096), most)?,
        Some(b"zstd") => all_of(zstd(body).ok()?, most)?,
        Some(_) => return None,
    };
    Some(read)
}

fn zstd(body: &[u8]) -> io::Result<impl Read> {
    let mut decoder = zstd::stream::read::Decoder::new(body)?;
    decoder.window_log_max(ZSTD_WINDOW)?;
    Ok(decoder)
}

/// Reads to the end; `None` beyond `most` bytes.
fn all_of(from: impl Read, most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut out).ok()?;
    (out.len() <= most).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            "gzip" => {
                let mut gzip = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
                gzip.write_all(body).expect("memory");
                gzip.finish().expect("memory")
            }
            "br" => {
                let params = brotli::enc::BrotliEncoderParams::default();
                brotli::BrotliCompress(&mut &*body, &mut out, &params).expect("memory");
                out
            }
            "zstd" => zstd::bulk::compress(body, 3).expect("memory"),
            _ => body.to_vec(),
        }
    }

    #[test]
    fn a_decoded_body_is_the_original_up_to_the_limit() {
        const MOST: usize = 1000;
        for coding in ["identity", "gzip", "br", "zstd", "GZIP "] {
            let name = coding.trim().to_ascii_lowercase();
            for length in [0, 1, MOST, MOST + 1, 1 << 20] {
                let body = vec![b'x'; length];
                let read = decoded(Some(coding.as_bytes()), &coded(&name, &body), MOST);
                let expected = (length <= MOST).then_some(body);
                assert_eq!(read, expected, "{coding} of {length}");
            }
            let broken = decoded(Some(coding.as_bytes()), b"\x1f\x8b\xff\xff\xff", MOST);
            assert_eq!(broken.is_some(), coding == "identity", "{coding}");
        }
        assert_eq!(decoded(None, b"x", MOST), Some(b"x".to_vec()));
        assert_eq!(decoded(Some(b"gzip, br"), b"x", MOST), None);
        assert_eq!(decoded(Some(b"deflate"), b"x", MOST), None);
    }
}
