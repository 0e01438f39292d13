//! Certificates, keys, OCSP responses and secrets, read from the operator's files.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::certificate::Certificate;
use super::x509::CertificateFields;

/// Limit of a file's size in bytes.
const LARGEST_FILE: u64 = 1024 * 1024;
/// Minimum length of a fleet secret, in bytes.
const SHORTEST_SECRET: usize = 32;
/// Mode bit of files that every user of the machine can read.
const WORLD_READABLE: u32 = 0o004;

/// The files of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain (PEM), the leaf first.
    pub certificate: PathBuf,
    /// Private key (PEM); `None` if it is in the same file.
    pub key: Option<PathBuf>,
    /// File with the OCSP response to staple (DER).
    pub ocsp: Option<PathBuf>,
}

/// Reason for which a file cannot be used, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFileError {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

impl TlsFileError {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl TlsFileError {
    /// Returns true if it concerns one of these files.
    pub(crate) fn is_about(&self, files: &CertificateFiles) -> bool {
        let named = [&*files.certificate, files.key_file()];
        named
            .iter()
            .any(|file| self.what.contains(&file.display().to_string()))
    }
}

impl CertificateFiles {
    /// The file with the key.
    pub fn key_file(&self) -> &Path {
        self.key.as_ref().unwrap_or(&self.certificate)
    }

    /// Reads the files and checks the key against the certificate, and its validity at `now`, in seconds
    /// since 1970.
    pub(crate) fn load(
        &self,
        provider: &CryptoProvider,
        now: i64,
    ) -> Result<Certificate, TlsFileError> {
        let chain = read_chain(&self.certificate)?;
        let name = self.certificate.display();
        let facts = chain
            .first()
            .and_then(|first| CertificateFields::read(first));
        let facts = facts.ok_or_else(|| {
            TlsFileError::new(
                format!("the first certificate in {name} cannot be read"),
                "reissue the certificate, or copy the file again",
            )
        })?;
        if facts.not_after.unix() < now {
            return Err(TlsFileError::new(
                format!("the certificate in {name} expired on {}", facts.not_after),
                "renew it; if it is not expired, correct the clock of this machine",
            ));
        }
        if facts.not_before.unix() > now {
            return Err(TlsFileError::new(
                format!(
                    "the certificate in {name} is not valid before {}",
                    facts.not_before
                ),
                "use the previous one until then, or correct the clock of this machine",
            ));
        }
        let key = CertifiedKey::from_der(chain, self.read_key()?, provider);
        let mut key = key.map_err(|error| self.mismatch(&error))?;
        if let Some(file) = &self.ocsp {
            key.ocsp = Some(read_ocsp(file)?);
        }
        Ok(Certificate {
            key: Arc::new(key),
            names: facts.names,
            not_before: facts.not_before.unix(),
            not_after: facts.not_after.unix(),
        })
    }

    fn read_key(&self) -> Result<PrivateKeyDer<'static>, TlsFileError> {
        let file = self.key_file();
        let bytes = read(file)?;
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
            let name = file.display();
            if memchr::memmem::find(&bytes, b"ENCRYPTED").is_some() {
                return TlsFileError::new(
                    format!("the key in {name} is protected by a password"),
                    format!("remove the password: openssl pkey -in {name} -out FILE"),
                );
            }
            let remedy = if self.key.is_some() {
                "set the file that begins with -----BEGIN PRIVATE KEY-----"
            } else {
                "set the file of the key as well: CERTIFICATE,KEY"
            };
            TlsFileError::new(format!("{name} contains no private key"), remedy)
        })
    }

    fn mismatch(&self, error: &Error) -> TlsFileError {
        let (certificate, key) = (self.certificate.display(), self.key_file().display());
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsFileError::new(
                format!("the key in {key} does not match the certificate in {certificate}"),
                "set the key with which the certificate was requested; the server's own certificate must be the \
                 first in its file",
            ),
            error => TlsFileError::new(
                format!(
                    "the certificate in {certificate} cannot be used with the key in {key}: {error}"
                ),
                "supported keys: ECDSA with P-256 or P-384, Ed25519, and RSA of at least 2048 bits",
            ),
        }
    }
}

/// Reads the certificates of a PEM file, at least one.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read(file)?;
    let name = file.display();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) if bytes.first() == Some(&0x30) => Err(TlsFileError::new(
            format!("the certificate in {name} is in DER form"),
            format!("convert it to PEM: openssl x509 -inform der -in {name} -out FILE"),
        )),
        Ok(_) => Err(TlsFileError::new(
            format!("{name} contains no certificate"),
            "set the file that begins with -----BEGIN CERTIFICATE-----, preferably the one with the full chain",
        )),
        Err(error) => Err(TlsFileError::new(
            format!("the certificates in {name} cannot be read: {error}"),
            "copy the file again",
        )),
    }
}

/// Reads an OCSP response (RFC 6960) in DER form.
fn read_ocsp(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let bytes = read(file)?;
    if bytes.first() == Some(&0x30) {
        return Ok(bytes);
    }
    Err(TlsFileError::new(
        format!("{} contains no OCSP response in DER form", file.display()),
        "write it with `openssl ocsp -respout FILE`",
    ))
}

/// Reads the secrets that a fleet derives its ticket keys from, one per line.
pub(crate) fn read_secrets(file: &Path) -> Result<Vec<Vec<u8>>, TlsFileError> {
    let bytes = read(file)?;
    let lines = bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    let secrets: Vec<Vec<u8>> = lines
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let remedy = "create one with: openssl rand -hex 32";
    if secrets.is_empty() {
        return Err(TlsFileError::new(
            format!("{} contains no secret", file.display()),
            remedy,
        ));
    }
    if let Some(at) = secrets
        .iter()
        .position(|secret| secret.len() < SHORTEST_SECRET)
    {
        let what = format!(
            "secret {} in {} has fewer than {SHORTEST_SECRET} characters",
            at + 1,
            file.display()
        );
        return Err(TlsFileError::new(what, remedy));
    }
    Ok(secrets)
}

/// Reads the key of an external account binding (RFC 8555 §7.3.4), in base64 or base64url.
pub(crate) fn read_eab_key(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let bytes = read(file)?;
    let key = decoded(bytes.trim_ascii()).filter(|key| !key.is_empty());
    key.ok_or_else(|| {
        TlsFileError::new(
            format!("{} contains no key in base64", file.display()),
            "copy only the key, as the authority shows it",
        )
    })
}

/// Decodes base64 or base64url (RFC 4648 §4, §5), ignoring padding; `None` for any other character.
fn decoded(digits: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut length) = (0u32, 0);
    let end = digits.iter().rposition(|&digit| digit != b'=');
    for &digit in &digits[..end.map_or(0, |last| last + 1)] {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        length += 6;
        if length >= 8 {
            length -= 8;
            out.push((bits >> length) as u8);
        }
    }
    Some(out)
}

/// Returns a warning if every user of the machine can read a secret file.
pub(crate) fn exposed(file: &Path) -> Option<TlsFileError> {
    let mode = std::fs::metadata(file).ok()?.mode();
    (mode & WORLD_READABLE != 0).then(|| {
        let name = file.display();
        TlsFileError::new(
            format!("{name} is readable by every user of this machine"),
            format!("chmod o= {name}"),
        )
    })
}

fn read(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let mut bytes = Vec::new();
    let read =
        File::open(file).and_then(|open| open.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
    let name = file.display();
    match read {
        Ok(_) if bytes.len() as u64 <= LARGEST_FILE => Ok(bytes),
        Ok(_) => Err(TlsFileError::new(
            format!("{name} is larger than 1 MiB"),
            "set the file that contains only the certificate or the key",
        )),
        Err(error) => Err(TlsFileError::new(
            format!("cannot read {name}: {error}"),
            "set a file that the user of the server may read",
        )),
    }
}
