//! Decoder of the chunked transfer coding (RFC 9112 §7.1).

/// Decoder state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkedDecoder {
    /// Within the chunk size: value so far, and number of digits.
    Size(u64, u8),
    /// Within a chunk extension; carries the chunk size.
    Extension(u64),
    /// Within chunk data: bytes left.
    Data(u64),
    /// After chunk data, before its line end.
    DataEnd,
    /// Within the trailer section: length of the current line without its line end.
    Trailer(u32),
    /// Complete.
    Done,
}

/// Maximum of digits in a chunk size: 60 bits.
const MAX_DIGITS: u8 = 15;
/// Maximum length of a trailer line, in bytes.
const MAX_TRAILER: u32 = 64 * 1024;

impl ChunkedDecoder {
    pub(super) const BEGIN: Self = Self::Size(0, 0);

    /// Decodes `bytes` and passes chunk data to `data`. Returns the number of bytes that belong to this
    /// body; `None` if it is malformed.
    pub(super) fn advance(&mut self, bytes: &[u8], data: &mut impl FnMut(&[u8])) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::Done {
            if let Self::Data(left) = *self {
                let take = left.min((bytes.len() - at) as u64);
                data(&bytes[at..at + take as usize]);
                at += take as usize;
                *self = if take == left {
                    Self::DataEnd
                } else {
                    Self::Data(left - take)
                };
                continue;
            }
            *self = self.after(bytes[at])?;
            at += 1;
        }
        Some(at)
    }

    /// Returns the state after a byte outside chunk data.
    fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Size(size, digits), _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16)?;
                (digits < MAX_DIGITS).then(|| Self::Size(size << 4 | u64::from(digit), digits + 1))
            }
            (Self::Size(_, 0), _) => None,
            (Self::Size(size, _) | Self::Extension(size), b'\n') => Some(match size {
                0 => Self::Trailer(0),
                size => Self::Data(size),
            }),
            (Self::Size(size, _), b';' | b' ' | b'\t' | b'\r') | (Self::Extension(size), _) => {
                Some(Self::Extension(size))
            }
            (Self::DataEnd, b'\r') => Some(Self::DataEnd),
            (Self::DataEnd, b'\n') => Some(Self::BEGIN),
            (Self::Trailer(length), b'\r') => Some(Self::Trailer(length)),
            (Self::Trailer(0), b'\n') | (Self::Done, _) => Some(Self::Done),
            (Self::Trailer(_), b'\n') => Some(Self::Trailer(0)),
            (Self::Trailer(length), _) if length < MAX_TRAILER => Some(Self::Trailer(length + 1)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_found_in_pieces_of_any_size() {
        let body = b"5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\n\r\nHTTP/1.1";
        let end = body.len() - b"HTTP/1.1".len();
        for step in 1..body.len() {
            let mut chunked = ChunkedDecoder::BEGIN;
            let mut read = 0;
            let mut data = Vec::new();
            for piece in body.chunks(step) {
                let mut keep = |bytes: &[u8]| data.extend_from_slice(bytes);
                read += chunked
                    .advance(piece, &mut keep)
                    .expect("it is well-formed");
            }
            assert_eq!(
                (chunked, read),
                (ChunkedDecoder::Done, end),
                "in steps of {step}"
            );
            assert_eq!(data, b"hello0123456789", "in steps of {step}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b"5x\r\n",
            b"1\r\nabc",
            b"1234567890123456\r\n",
        ] {
            let mut chunked = ChunkedDecoder::BEGIN;
            assert_eq!(chunked.advance(body, &mut |_| ()), None, "{body:?}");
        }
    }
}
