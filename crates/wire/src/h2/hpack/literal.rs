//! Representations that do not refer to the dynamic table (RFC 7541 §6.2), and the status.

use super::{fixed, huffman, integer};

/// Writes the status of a response.
pub(super) fn status(out: &mut Vec<u8>, status: u16) {
    let known = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digits = [status / 100 % 10, status / 10 % 10, status % 10];
            out.extend_from_slice(&[0x08, 3]);
            return out.extend(digits.map(|digit| b'0' + digit as u8));
        }
    };
    out.push(0x80 | known);
}

/// Writes a literal without Huffman coding. `known` is the index of its name in the static table, or 0. `pattern` is that
/// of a literal without indexing, or of one that is never indexed.
pub(super) fn plain(out: &mut Vec<u8>, pattern: u8, known: usize, name: &[u8], value: &[u8]) {
    begin(out, pattern, known, name);
    integer::write(out, 0, 7, value.len());
    out.extend_from_slice(value);
}

/// Writes a literal without indexing and without Huffman coding, whose value is appended by `value`.
pub(super) fn with_value(out: &mut Vec<u8>, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
    begin(out, 0, fixed::of_response(name), name);
    let start = out.len();
    out.push(0);
    value(out);
    let length = out.len() - start - 1;
    if length < 0x7f {
        out[start] = length as u8;
        return;
    }
    // The length takes more than the byte that was left for it.
    let value = out.split_off(start + 1);
    out.truncate(start);
    integer::write(out, 0, 7, length);
    out.extend_from_slice(&value);
}

/// Writes a literal with Huffman coding where that is shorter. `form` is its pattern and the bits of the prefix behind it.
pub(super) fn shortest(
    out: &mut Vec<u8>,
    (pattern, prefix): (u8, u32),
    known: usize,
    name: &[u8],
    value: &[u8],
) {
    integer::write(out, pattern, prefix, known);
    if known == 0 {
        string(out, &name.to_ascii_lowercase());
    }
    string(out, value);
}

fn begin(out: &mut Vec<u8>, pattern: u8, known: usize, name: &[u8]) {
    integer::write(out, pattern, 4, known);
    if known == 0 {
        integer::write(out, 0, 7, name.len());
        let start = out.len();
        out.extend_from_slice(name);
        out[start..].make_ascii_lowercase();
    }
}

fn string(out: &mut Vec<u8>, plain: &[u8]) {
    let coded = huffman::coded_len(plain);
    if coded < plain.len() {
        integer::write(out, 0x80, 7, coded);
        huffman::encode(plain, out);
    } else {
        integer::write(out, 0, 7, plain.len());
        out.extend_from_slice(plain);
    }
}
