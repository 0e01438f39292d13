//! Field blocks, as they come one after the other on a connection: any bytes are fields or refused,
//! within bounds, and what was read is read again after it was written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_wire::h2::hpack::{Decoder, Encoder, Scratch};

/// What one byte of a block can stand for: an entry that fills the table.
const MOST_FOR_A_BYTE: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let (mut decoder, mut scratch) = (Decoder::default(), Scratch::default());
    let (mut encoder, mut again) = (Encoder::default(), Decoder::default());
    for block in input.split(|&byte| byte == b'\n') {
        let mut fields = Vec::new();
        let mut size = 0;
        let read = decoder.decode(block, &mut scratch, |name, value| {
            size += name.len() + value.len();
            fields.push((name.to_ascii_lowercase(), value.to_vec()));
        });
        assert!(fields.len() <= block.len() && size <= block.len() * MOST_FOR_A_BYTE);
        if read.is_err() {
            return;
        }
        encoder.allow(block.len() * 64);
        let mut written = Vec::new();
        encoder.begin_trailers(&mut written);
        for (name, value) in &fields {
            encoder.field(&mut written, name, value);
        }
        let mut same = Vec::new();
        let read = again.decode(&written, &mut scratch, |name, value| {
            same.push((name.to_vec(), value.to_vec()));
        });
        assert_eq!(read, Ok(()));
        assert_eq!(same, fields);
    }
});
