//! Header compression for HTTP/2: HPACK (RFC 7541). There is no I/O in here. Any input is decoded or refused,
//! within limits that do not depend on it.

mod decoder;
mod encoder;
mod fixed;
mod huffman;
mod integer;
mod literal;
mod static_block;
mod table;

pub use decoder::{BadBlock, Decoder, Scratch};
pub use encoder::Encoder;
pub use static_block::StaticBlock;

/// Initial size of a dynamic table in bytes (RFC 9113 §6.5.2). The size for requests is never changed.
pub const TABLE_SIZE: usize = 4096;

/// Returns the bytes of hexadecimal digits.
#[cfg(test)]
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<_> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
