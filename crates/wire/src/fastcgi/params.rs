//! Variables of a request, as name-value pairs.

/// Variables of a request, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<u8>);

impl Params {
    /// Appends a variable whose value has these parts.
    pub fn push(&mut self, name: &str, value: &[&[u8]]) {
        let length: usize = value.iter().map(|part| part.len()).sum();
        self.push_length(name.len());
        self.push_length(length);
        self.0.extend_from_slice(name.as_bytes());
        for part in value {
            self.0.extend_from_slice(part);
        }
    }

    /// All of them, encoded.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// One byte below 128, else four with the highest bit set. Names and values come from the head of a request, which
    /// is far shorter than the 2 GiB that four bytes can say.
    fn push_length(&mut self, length: usize) {
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => self.0.push(short),
            _ => {
                let long = length as u32 | 0x8000_0000;
                self.0.extend_from_slice(&long.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the pairs back.
    fn pairs(mut bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut pairs = Vec::new();
        while !bytes.is_empty() {
            let mut length = || {
                let (length, rest) = match bytes {
                    [short, rest @ ..] if *short < 0x80 => (usize::from(*short), rest),
                    [a, b, c, d, rest @ ..] => {
                        let long = u32::from_be_bytes([a & 0x7f, *b, *c, *d]);
                        (long as usize, rest)
                    }
                    _ => panic!("a length is cut off"),
                };
                bytes = rest;
                length
            };
            let (name, value) = (length(), length());
            let (pair, rest) = bytes.split_at(name + value);
            let name_text = String::from_utf8(pair[..name].to_vec()).unwrap();
            pairs.push((name_text, pair[name..].to_vec()));
            bytes = rest;
        }
        pairs
    }

    #[test]
    fn lengths_take_one_byte_or_four() {
        for (length, expected) in [
            (0, &b"\x01\x00A"[..]),
            (127, b"\x01\x7fA"),
            (128, b"\x01\x80\x00\x00\x80A"),
            (70_000, b"\x01\x80\x01\x11\x70A"),
        ] {
            let mut params = Params::default();
            params.push("A", &[&vec![b'x'; length]]);
            assert!(params.as_bytes().starts_with(expected), "{length}");
            assert_eq!(params.as_bytes().len(), expected.len() + length);
        }
    }

    proptest! {
        #[test]
        fn pairs_are_read_back(
            sent in prop::collection::vec(("[A-Z_]{0,200}", prop::collection::vec(any::<u8>(), 0..300)), 0..8),
        ) {
            let mut params = Params::default();
            for (name, value) in &sent {
                let (begin, end) = value.split_at(value.len() / 2);
                params.push(name, &[begin, end]);
            }
            prop_assert_eq!(pairs(params.as_bytes()), sent);
        }
    }
}
