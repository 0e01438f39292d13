//! The Huffman code of strings (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their bytes. So all tables are
//! computed from the lengths at compile time.

/// Code length of each byte, in bits.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// Longest code in bits; that of EOS, which is never sent, is the last of these.
const LONGEST: u32 = 30;
/// Bits by which short codes are looked up. All letters and digits have one.
const SHORT: u32 = 8;

const CODES: [u32; 256] = codes();
/// Byte and code length of the short code that these bits begin with; length 0 for longer codes.
static SHORT_CODES: [(u8, u8); 1 << SHORT] = short_codes();
/// Codes of each length.
static RANGES: [CodeRange; LONGEST as usize + 1] = ranges().0;
/// Bytes in the order of their codes.
static BYTES: [u8; 256] = ranges().1;

/// Codes of one length.
#[derive(Clone, Copy)]
struct CodeRange {
    first: u32,
    /// End of the range, exclusive.
    end: u32,
    /// Index of the first byte in [`BYTES`].
    at: u32,
}

/// Error: EOS within the string, or padding that is too long or not all ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotHuffman;

/// Decodes `coded` and appends it to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), NotHuffman> {
    // No code is shorter than five bits.
    out.reserve(coded.len() * 8 / 5);
    // Bits that are not decoded yet, the next one at the top, zeros behind them.
    let (mut bits, mut count) = (0u64, 0);
    let mut rest = coded.iter();
    loop {
        while count <= u64::BITS - 8
            && let Some(&byte) = rest.next()
        {
            count += 8;
            bits |= u64::from(byte) << (u64::BITS - count);
        }
        // Short codes make up nearly all of a string: they are decoded until too few bits are left.
        loop {
            let (byte, length) = SHORT_CODES[(bits >> (u64::BITS - SHORT)) as usize];
            let length = u32::from(length);
            if length == 0 || length > count {
                break;
            }
            out.push(byte);
            bits <<= length;
            count -= length;
        }
        if rest.len() == 0 && count < 8 {
            // Padding: fewer than eight ones.
            let is_padding = bits.leading_ones() == count;
            return if is_padding { Ok(()) } else { Err(NotHuffman) };
        }
        if count < LONGEST && rest.len() > 0 {
            continue;
        }
        let (byte, length) = long_code(bits).ok_or(NotHuffman)?;
        if length > count {
            return Err(NotHuffman);
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
}

/// Returns the byte whose code these bits begin with, and its length; `None` for EOS. The code is not a short one.
fn long_code(bits: u64) -> Option<(u8, u32)> {
    let lengths = RANGES.iter().zip(0..).skip(SHORT as usize + 1);
    let code_of = |length: u32| (bits >> (u64::BITS - length)) as u32;
    let mut found = lengths.filter(|(range, length)| code_of(*length) < range.end);
    let (range, length) = found.next()?;
    let byte = BYTES.get((range.at + code_of(length) - range.first) as usize)?;
    Some((*byte, length))
}

/// Returns the encoded size of `plain` in bytes.
pub(super) fn coded_len(plain: &[u8]) -> usize {
    let bits: usize = plain
        .iter()
        .map(|&byte| usize::from(LENGTHS[usize::from(byte)]))
        .sum();
    bits.div_ceil(8)
}

/// Encodes `plain` and appends it to `out`.
pub(super) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0);
    for &byte in plain {
        let at = usize::from(byte);
        bits = bits << LENGTHS[at] | u64::from(CODES[at]);
        count += LENGTHS[at];
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        let padding = 8 - count;
        out.push((bits << padding) as u8 | ((1 << padding) - 1));
    }
}

const fn codes() -> [u32; 256] {
    let (ranges, bytes) = ranges();
    let mut codes = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = bytes[at] as usize;
        let range = ranges[LENGTHS[byte] as usize];
        codes[byte] = range.first + (at as u32 - range.at);
        at += 1;
    }
    codes
}

const fn short_codes() -> [(u8, u8); 1 << SHORT] {
    let mut short = [(0, 0); 1 << SHORT];
    let mut byte = 0;
    while byte < 256 {
        let length = LENGTHS[byte];
        if length as u32 <= SHORT {
            let free = SHORT - length as u32;
            let mut bits = 0;
            while bits < 1 << free {
                short[(CODES[byte] << free | bits) as usize] = (byte as u8, length);
                bits += 1;
            }
        }
        byte += 1;
    }
    short
}

const fn ranges() -> ([CodeRange; LONGEST as usize + 1], [u8; 256]) {
    let nothing = CodeRange {
        first: 0,
        end: 0,
        at: 0,
    };
    let (mut ranges, mut bytes) = ([nothing; LONGEST as usize + 1], [0; 256]);
    let (mut code, mut at) = (0, 0);
    let mut length = 1;
    while length <= LONGEST {
        let (first, start) = (code, at);
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as u32 == length {
                bytes[at] = byte as u8;
                code += 1;
                at += 1;
            }
            byte += 1;
        }
        ranges[length as usize] = CodeRange {
            first,
            end: code,
            at: start as u32,
        };
        code <<= 1;
        length += 1;
    }
    (ranges, bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coded(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(plain, &mut out);
        assert_eq!(out.len(), coded_len(plain));
        out
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, NotHuffman> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for (plain, code) in [
            ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
            ("no-cache", "a8eb10649cbf"),
            ("custom-key", "25a849e95ba97d7f"),
            ("custom-value", "25a849e95bb8e8b4bf"),
            ("302", "6402"),
            ("private", "aec3771a4b"),
            (
                "Mon, 21 Oct 2013 20:13:21 GMT",
                "d07abe941054d444a8200595040b8166e082a62d1bff",
            ),
            (
                "https://www.example.com",
                "9d29ad171863c78f0b97c8e9ae82ae43d3",
            ),
            ("gzip", "9bd9ab"),
            (
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            ),
        ] {
            let bytes = super::super::hex(code);
            assert_eq!(coded(plain.as_bytes()), bytes, "{plain}");
            assert_eq!(decoded(&bytes).as_deref(), Ok(plain.as_bytes()));
        }
    }

    #[test]
    fn invalid_codes_are_refused() {
        for code in [
            // EOS, alone and followed by more.
            "3fffffff",
            "fffffffc",
            "fffffffffc",
            // Padding of eight ones and more.
            "ff",
            "f1ff",
            "1fff",
            // Padding of zeros.
            "00",
            "18",
        ] {
            assert_eq!(decoded(&super::super::hex(code)), Err(NotHuffman), "{code}");
        }
        assert_eq!(decoded(b""), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn encoded_strings_are_decoded(plain: Vec<u8>) {
            prop_assert_eq!(decoded(&coded(&plain)), Ok(plain));
        }

        #[test]
        fn a_decoded_string_has_one_encoding(code: Vec<u8>) {
            if let Ok(plain) = decoded(&code) {
                prop_assert_eq!(coded(&plain), code);
            }
        }
    }
}
