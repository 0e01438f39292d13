//! Secrets that requests carry.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::access::named::{self, Unreadable};

/// The shortest secret. A shorter one could be guessed.
const SHORTEST: usize = 16;
/// The longest.
const LONGEST: usize = 1024;
const SCHEME: &[u8] = b"Bearer ";

/// A secret that requests have to carry.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// There is no secret in it.
    #[error(
        "the first line of {option} {} has to be a secret of {SHORTEST} to {LONGEST} visible ASCII \
         characters (such as `openssl rand -hex 32` prints)", path.display()
    )]
    Unsuitable {
        /// Who names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// The first line of the file that this option names.
    pub fn read(path: &Path, option: &'static str) -> Result<Self, TokenError> {
        let text = named::read(path, option)?;
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        Self::of(line.trim_ascii()).ok_or_else(|| TokenError::Unsuitable {
            option,
            path: path.to_owned(),
        })
    }

    /// This secret, if it is one.
    pub fn of(secret: &[u8]) -> Option<Self> {
        let is_suitable =
            (SHORTEST..=LONGEST).contains(&secret.len()) && secret.iter().all(u8::is_ascii_graphic);
        is_suitable.then(|| Self(secret.into()))
    }

    /// Whether this value of `Authorization` has it.
    pub fn is_in(&self, value: &[u8]) -> bool {
        let Some((scheme, secret)) = value.split_at_checked(SCHEME.len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && self.is(secret.trim_ascii())
    }

    /// Whether this is it. How long that takes tells nothing about it but its length.
    pub(crate) fn is(&self, secret: &[u8]) -> bool {
        bool::from(secret.ct_eq(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_whole() {
        let token = Token::of(b"0123456789abcdef").expect("a secret");
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        assert!(token.is_in(b"bearer  0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn what_could_be_guessed_is_no_secret() {
        assert!(Token::of(b"0123456789abcde").is_none());
        assert!(Token::of(b"0123456789 bcdef").is_none());
        assert!(Token::of(&[b'x'; LONGEST + 1]).is_none());
    }
}
