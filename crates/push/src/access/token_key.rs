//! Keys that verify JSON Web Tokens (RFC 7519).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{AlgorithmFamily, DecodingKey, Validation, decode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::access::option_file::{self, OptionFileError};

/// Minimum length of an HMAC secret, in bytes (RFC 7518 §3.2): tokens signed with a shorter one reveal it to
/// a search.
pub(crate) const SHORTEST: usize = 32;
/// Tolerated clock skew of the token's issuer, in seconds.
const LEEWAY: u64 = 5;
/// Longest time to expiry that is represented; later ones are cut to it.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A key that verifies tokens. It alone determines the accepted algorithms, never the token.
#[derive(Clone, Debug)]
pub struct TokenKey(DecodingKey);

/// Error reading a key.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] OptionFileError),
    /// The file contains no suitable key.
    #[error(
        "{option} {} must contain a secret of at least {SHORTEST} bytes (such as `openssl rand -hex 32` prints), or a \
         public key (`-----BEGIN PUBLIC KEY-----`; RSA, P-256, P-384 or Ed25519)", path.display()
    )]
    Unsuitable {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
    },
}

impl TokenKey {
    /// Reads the file that the option names.
    pub fn read(path: &Path, option: &'static str) -> Result<Self, TokenKeyError> {
        let text = option_file::read(path, option)?;
        Self::parse(&text).ok_or_else(|| TokenKeyError::Unsuitable {
            option,
            path: path.to_owned(),
        })
    }

    /// Parses a key: a secret, or a public key in PEM.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let key = if !text.starts_with(b"-----BEGIN ") {
            (text.len() >= SHORTEST).then(|| DecodingKey::from_secret(text))
        } else if text.starts_with(b"-----BEGIN PUBLIC KEY")
            || text.starts_with(b"-----BEGIN RSA PUBLIC KEY")
        {
            let rsa = DecodingKey::from_rsa_pem(text);
            let other = rsa.or_else(|_| DecodingKey::from_ec_pem(text));
            other.or_else(|_| DecodingKey::from_ed_pem(text)).ok()
        } else {
            // Private keys are rejected: verification does not need them.
            None
        };
        key.map(Self)
    }

    /// Returns whether the key can also sign tokens.
    pub fn is_secret(&self) -> bool {
        self.0.family() == AlgorithmFamily::Hmac
    }
    /// Verifies a token and returns its claims. If an audience is given, the token must contain it.
    pub(crate) fn claims<C: DeserializeOwned>(
        &self,
        token: &[u8],
        audience: Option<&str>,
    ) -> Result<C, JwtError> {
        let mut validation = Validation::new_for_family(self.0.family());
        validation.required_spec_claims.clear();
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.validate_aud = audience.is_some();
        if let Some(audience) = audience {
            validation.set_audience(&[audience]);
            validation.set_required_spec_claims(&["aud"]);
        }
        Ok(decode(token, &self.0, &validation)?.claims)
    }
}

/// Error verifying a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("the token is not valid: {0}")]
    Invalid(#[from] jsonwebtoken::errors::Error),
    #[error("the token has expired")]
    Expired,
}

/// Converts the `exp` claim to a local deadline; fails if it has passed.
pub(crate) fn expiry(exp: f64) -> Result<Instant, JwtError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let left = exp - now.unwrap_or_default().as_secs_f64();
    if left > 0.0 {
        Ok(Instant::now() + Duration::from_secs_f64(left.min(LONGEST.as_secs_f64())))
    } else {
        Err(JwtError::Expired)
    }
}
