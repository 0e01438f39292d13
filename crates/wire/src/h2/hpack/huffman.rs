//! The Huffman code of strings (RFC 7541 §5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their bytes. So both tables are
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
const LONGEST: u8 = 30;
/// Inner nodes of the code tree, which has a leaf for each byte and one for EOS.
const NODES: usize = 256;
/// Flag of a [`Branch`]: a leaf, with its byte in the low bits.
const LEAF: u16 = 0x100;
/// Flag of a [`Branch`]: the leaf of EOS.
const END: u16 = 0x200;

const CODES: [u32; 256] = codes();
static STEPS: [[Transition; 16]; NODES] = steps();
static PADDING: [bool; NODES] = padding();

/// Successor of a node after one bit: a node index, [`LEAF`] or [`END`].
type Branch = u16;

/// Transition from a node by four bits.
#[derive(Clone, Copy)]
struct Transition {
    next: u8,
    /// The bits are not a valid code.
    fails: bool,
    byte: Option<u8>,
}

/// Error: EOS within the string, or padding that is too long or not all ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotHuffman;

/// Decodes `coded` and appends it to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), NotHuffman> {
    let mut node = 0;
    for byte in coded {
        for bits in [byte >> 4, byte & 15] {
            let step = STEPS[usize::from(node)][usize::from(bits)];
            if step.fails {
                return Err(NotHuffman);
            }
            out.extend(step.byte);
            node = step.next;
        }
    }
    if PADDING[usize::from(node)] {
        Ok(())
    } else {
        Err(NotHuffman)
    }
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
    let mut codes = [0; 256];
    let mut code = 0;
    let mut length = 1;
    while length <= LONGEST {
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] == length {
                codes[byte] = code;
                code += 1;
            }
            byte += 1;
        }
        code <<= 1;
        length += 1;
    }
    codes
}

const fn tree() -> [[Branch; 2]; NODES] {
    let mut tree = [[0; 2]; NODES];
    let mut nodes = 1;
    let mut leaf = 0;
    while leaf <= 256 {
        let (code, length, mark) = if leaf < 256 {
            (CODES[leaf], LENGTHS[leaf], LEAF | leaf as u16)
        } else {
            ((1 << LONGEST) - 1, LONGEST, END)
        };
        let mut node = 0;
        let mut left = length;
        while left > 1 {
            left -= 1;
            let bit = (code >> left & 1) as usize;
            if tree[node][bit] == 0 {
                tree[node][bit] = nodes;
                nodes += 1;
            }
            node = tree[node][bit] as usize;
        }
        tree[node][(code & 1) as usize] = mark;
        leaf += 1;
    }
    tree
}

const fn steps() -> [[Transition; 16]; NODES] {
    let tree = tree();
    let nothing = Transition {
        next: 0,
        fails: false,
        byte: None,
    };
    let mut steps = [[nothing; 16]; NODES];
    let mut node = 0;
    while node < NODES {
        let mut bits = 0;
        while bits < 16 {
            steps[node][bits] = step(&tree, node, bits);
            bits += 1;
        }
        node += 1;
    }
    steps
}

/// Computes a transition. No code is shorter than five bits, so four complete at most one.
const fn step(tree: &[[Branch; 2]; NODES], from: usize, bits: usize) -> Transition {
    let mut step = Transition {
        next: 0,
        fails: false,
        byte: None,
    };
    let mut node = from;
    let mut left = 4;
    while left > 0 {
        left -= 1;
        let branch = tree[node][bits >> left & 1];
        if branch & END != 0 {
            step.fails = true;
            return step;
        }
        if branch & LEAF != 0 {
            step.byte = Some(branch as u8);
            node = 0;
        } else {
            node = branch as usize;
        }
    }
    step.next = node as u8;
    step
}

/// Marks the nodes where a string may end: after fewer than eight ones.
const fn padding() -> [bool; NODES] {
    let tree = tree();
    let mut padding = [false; NODES];
    let mut node = 0;
    let mut ones = 0;
    while ones < 8 {
        padding[node] = true;
        node = tree[node][1] as usize;
        ones += 1;
    }
    padding
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
