//! Field sections as HTTP/2 compresses them (RFC 7541). There is no I/O in here, and nothing is
//! trusted: any bytes are decoded to fields or refused, within bounds that do not depend on them.

mod decoder;
mod encoder;
mod fixed;
mod huffman;
mod integer;
mod table;

pub use decoder::{BadBlock, Decoder, Scratch};
pub use encoder::Encoder;

/// The bound of a dynamic table before anything else is said (RFC 9113 §6.5.2). It is never
/// changed for what clients send.
pub const TABLE_SIZE: usize = 4096;

/// The bytes that hexadecimal digits stand for.
#[cfg(test)]
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<_> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
