//! The codecs: encode whole bodies, on the threads of the [`Compressor`](super::Compressor).

use std::io::{self, Write};

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use microcache_policy::Coding;
use microcache_policy::edge::PagePieces;
use microcache_store::EncodingMethod;

use super::pieces::GzipPieces;

const GZIP: u32 = 6;
const BROTLI: i32 = 5;
const BROTLI_THOROUGH: i32 = 11;
/// The zstd level; its window is within the limit of every decoder (RFC 9659).
const ZSTD: i32 = 9;

/// Encodes a body; empty if it saves less than a sixteenth, which is not worth decoding.
pub(super) fn encoded(making: EncodingMethod, body: &[u8]) -> io::Result<Vec<u8>> {
    let encoded = match making {
        EncodingMethod::Fast(Coding::Gzip) => gzip(body),
        EncodingMethod::Fast(Coding::Brotli) => brotli(body, BROTLI),
        EncodingMethod::Fast(Coding::Zstd) => zstd::bulk::compress(body, ZSTD),
        EncodingMethod::Best => brotli(body, BROTLI_THOROUGH),
        // The pieces follow from the body.
        EncodingMethod::Pieces => match PagePieces::of(body) {
            Some(pieces) => GzipPieces::encode(body, &pieces),
            None => Ok(Vec::new()),
        },
    }?;
    let is_worth_it = encoded.len() <= body.len() - body.len() / 16;
    Ok(if is_worth_it { encoded } else { Vec::new() })
}

fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let into = Vec::with_capacity(body.len() / 4 + 64);
    let mut encoder = GzEncoder::new(into, Compression::new(GZIP));
    encoder.write_all(body)?;
    encoder.finish()
}

fn brotli(body: &[u8], quality: i32) -> io::Result<Vec<u8>> {
    let params = BrotliEncoderParams {
        quality,
        size_hint: body.len(),
        ..BrotliEncoderParams::default()
    };
    let mut encoded = Vec::with_capacity(body.len() / 4 + 64);
    brotli::BrotliCompress(&mut &*body, &mut encoded, &params)?;
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ALL: [EncodingMethod; 4] = [
        EncodingMethod::Fast(Coding::Gzip),
        EncodingMethod::Fast(Coding::Brotli),
        EncodingMethod::Fast(Coding::Zstd),
        EncodingMethod::Best,
    ];

    fn decoded(coding: Coding, encoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let read = match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(encoded).read_to_end(&mut out),
            Coding::Brotli => brotli::Decompressor::new(encoded, 4096).read_to_end(&mut out),
            Coding::Zstd => {
                out = zstd::stream::decode_all(encoded).expect("it is a frame");
                Ok(out.len())
            }
        };
        read.expect("it can be decoded");
        out
    }

    #[test]
    fn decoding_restores_the_body() {
        let rows: Vec<String> = (0..4000)
            .map(|n| format!("row {} of many", n * n))
            .collect();
        let text = rows.join("\n");
        for making in ALL {
            let encoded = encoded(making, text.as_bytes()).expect("nothing can fail");
            assert!(encoded.len() < text.len() / 2, "{making:?}");
            assert!(
                decoded(making.coding(), &encoded) == text.as_bytes(),
                "{making:?}"
            );
        }
    }

    #[test]
    fn incompressible_bodies_are_left_alone() {
        let noise = microcache_testkit::noise(5000, 1);
        for making in ALL {
            for body in [&noise[..], b"", b"x"] {
                let encoded = encoded(making, body).expect("nothing can fail");
                assert!(encoded.is_empty(), "{making:?} of {} bytes", body.len());
            }
        }
    }
}
