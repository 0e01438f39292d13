//! Shared secrets carried by requests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::access::option_file::{self, OptionFileError};

/// Length limits of a secret, in bytes. A shorter one could be guessed.
const SHORTEST: usize = 16;
const LONGEST: usize = 1024;
const SCHEME: &[u8] = b"Bearer ";

/// A shared secret.
#[derive(Clone)]
pub struct SharedSecret(Arc<[u8]>);

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Error reading a secret.
#[derive(Debug, thiserror::Error)]
pub enum SharedSecretError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] OptionFileError),
    /// The file's first line is not a suitable secret.
    #[error(
        "the first line of {option} {} must be a secret of {SHORTEST} to {LONGEST} visible ASCII \
         characters (such as `openssl rand -hex 32` prints)", path.display()
    )]
    Unsuitable {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl SharedSecret {
    /// Reads the first line of the file that the option names.
    pub fn read(path: &Path, option: &'static str) -> Result<Self, SharedSecretError> {
        let text = option_file::read(path, option)?;
        let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        Self::parse(line.trim_ascii()).ok_or_else(|| SharedSecretError::Unsuitable {
            option,
            path: path.to_owned(),
        })
    }

    /// Returns the secret, if it is long enough and visible ASCII.
    pub fn parse(secret: &[u8]) -> Option<Self> {
        let is_suitable =
            (SHORTEST..=LONGEST).contains(&secret.len()) && secret.iter().all(u8::is_ascii_graphic);
        is_suitable.then(|| Self(secret.into()))
    }

    /// Returns whether this value of `Authorization` carries the secret.
    pub fn matches_authorization(&self, value: &[u8]) -> bool {
        let Some((scheme, secret)) = value.split_at_checked(SCHEME.len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && self.matches(secret.trim_ascii())
    }

    /// Compares in constant time; only the length is revealed.
    pub(crate) fn matches(&self, secret: &[u8]) -> bool {
        bool::from(secret.ct_eq(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_whole() {
        let token = SharedSecret::parse(b"0123456789abcdef").expect("a secret");
        assert!(token.matches_authorization(b"Bearer 0123456789abcdef"));
        assert!(token.matches_authorization(b"bearer  0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer ",
            "",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!token.matches_authorization(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_guessable_secret_is_refused() {
        assert!(SharedSecret::parse(b"0123456789abcde").is_none());
        assert!(SharedSecret::parse(b"0123456789 bcdef").is_none());
        assert!(SharedSecret::parse(&[b'x'; LONGEST + 1]).is_none());
    }
}
