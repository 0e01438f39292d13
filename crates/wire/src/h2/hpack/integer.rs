//! Integers with a prefix (RFC 7541 §5.1).

/// Largest accepted value, far beyond any length or index.
const LARGEST: usize = 1 << 24;

/// Decodes an integer off the front of `block`, in whose first byte the low `prefix` bits count. `None` if it
/// is truncated or above [`LARGEST`].
pub(super) fn read(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let full = (1 << prefix) - 1;
    let mut value = usize::from(*block.split_off_first()?) & full;
    if value < full {
        return Some(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = *block.split_off_first()?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (value <= LARGEST).then_some(value);
        }
    }
    None
}

/// Encodes an integer to `out`; `pattern` fills the bits above the prefix of its first byte.
pub(super) fn write(out: &mut Vec<u8>, pattern: u8, prefix: u32, value: usize) {
    let full = (1usize << prefix) - 1;
    if value < full {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | full as u8);
    let mut rest = value - full;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (value, prefix, bytes) in [
            (10, 5, &[0b01010][..]),
            (1337, 5, &[0b11111, 0b1001_1010, 0b1010]),
            (42, 8, &[42]),
            (31, 5, &[31, 0]),
        ] {
            let mut out = Vec::new();
            write(&mut out, 0, prefix, value);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &bytes[..], prefix), Some(value));
        }
    }

    #[test]
    fn truncated_and_too_large_integers_are_refused() {
        for bytes in [
            &[][..],
            &[31],
            &[31, 0x80],
            &[31, 0x80, 0x80, 0x80, 0x80],
            &[31, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[31, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(read(&mut &*bytes, 5), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn written_integers_are_read(value in 0..=LARGEST, prefix in 1u32..=8, rest: Vec<u8>) {
            let mut out = Vec::new();
            write(&mut out, 0, prefix, value);
            out.extend_from_slice(&rest);
            let mut block = &out[..];
            prop_assert_eq!(read(&mut block, prefix), Some(value));
            prop_assert_eq!(block, rest);
        }
    }
}
