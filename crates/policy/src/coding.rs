//! Content codings (RFC 9110 §8.4.1) that this cache produces.

/// A content coding that this cache produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// Every coding.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Brotli, Self::Zstd];

    /// The token in `Content-Encoding` and `Accept-Encoding`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// The coding with this name. `x-gzip` is an alias of `gzip` (RFC 9110 §8.4.1.3).
    pub fn named(name: &[u8]) -> Option<Self> {
        let is = |one: &Self| name.eq_ignore_ascii_case(one.as_str().as_bytes());
        match Self::ALL.into_iter().find(is) {
            None if name.eq_ignore_ascii_case(b"x-gzip") => Some(Self::Gzip),
            found => found,
        }
    }
}

/// The coding of a response that this cache has encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentCoding {
    /// A coding that every recipient accepting it can decode.
    Plain(Coding),
    /// A coding that only recipients with the dictionary can decode.
    Difference(DictionaryCoding),
}

impl SentCoding {
    /// Every coding.
    pub const ALL: [Self; 5] = [
        Self::Plain(Coding::Gzip),
        Self::Plain(Coding::Brotli),
        Self::Plain(Coding::Zstd),
        Self::Difference(DictionaryCoding::Dcb),
        Self::Difference(DictionaryCoding::Dcz),
    ];

    /// The token in `Content-Encoding` and `Accept-Encoding`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain(coding) => coding.as_str(),
            Self::Difference(coding) => coding.as_str(),
        }
    }

    /// The index in [`SentCoding::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Plain(coding) => coding as usize,
            Self::Difference(coding) => Coding::ALL.len() + coding as usize,
        }
    }
}

/// A content coding with a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DictionaryCoding {
    /// Brotli with a dictionary (RFC 9842 §4).
    Dcb,
    /// Zstd with a dictionary (RFC 9842 §5).
    Dcz,
}

impl DictionaryCoding {
    /// Both codings.
    pub const ALL: [Self; 2] = [Self::Dcb, Self::Dcz];

    /// The token in `Content-Encoding` and `Accept-Encoding`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dcb => "dcb",
            Self::Dcz => "dcz",
        }
    }

    /// The header of the encoded body in front of the dictionary's hash: of the Brotli stream (RFC 9842 §4), or of the
    /// zstd frame, which is a skippable one (RFC 9842 §5).
    pub const fn magic(self) -> &'static [u8] {
        match self {
            Self::Dcb => &[0xff, 0x44, 0x43, 0x42],
            Self::Dcz => &[0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0],
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Dcb => Self::Dcz,
            Self::Dcz => Self::Dcb,
        }
    }
}
