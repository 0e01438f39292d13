//! Certificates issued by ACME while the server runs, and pending challenges.
//!
//! Process-wide, and unaffected by a reload. The ACME client is elsewhere; it stores here what it obtains,
//! and removes what has expired.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::certificate::{Certificate, CertificateReport, RenewalState};
use super::provider;
use super::x509::CertificateFields;

/// URL path of http-01 challenges (RFC 8555 §8.3).
const WELL_KNOWN: &[u8] = b"/.well-known/acme-challenge/";
/// Limit of certificates in a chain; three are usual.
const LONGEST_CHAIN: usize = 10;

/// Issued certificates and pending challenges.
#[derive(Default)]
pub struct IssuedCertificates {
    /// Certificates by DNS name or address.
    certificates: RwLock<HashMap<String, Arc<Certificate>>>,
    /// Key authorizations served under [`WELL_KNOWN`], by token.
    answers: RwLock<HashMap<String, String>>,
    /// Certificates of pending tls-alpn-01 challenges, by name.
    handshakes: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    renewals: Mutex<BTreeMap<String, RenewalState>>,
}

/// An issued certificate that passed all checks.
#[derive(Clone)]
pub struct IssuedCertificate {
    certificate: Arc<Certificate>,
    /// Begin of its validity, in seconds since 1970.
    pub not_before: i64,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
    /// Authority key identifier (RFC 5280 §4.2.1.1).
    pub authority_key: Vec<u8>,
    /// Serial number, as encoded.
    pub serial: Vec<u8>,
}

impl IssuedCertificate {
    /// Parses a certificate chain with its key in PEM form. Fails if they do not match each other or `name`,
    /// or are not valid at `now`, in seconds since 1970.
    pub fn read(pem: &str, name: &str, now: i64) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain = chain.map_err(|error| format!("the certificates cannot be read: {error}"))?;
        if chain.len() > LONGEST_CHAIN {
            return Err(format!("there are more than {LONGEST_CHAIN} certificates"));
        }
        let first = chain.first().ok_or("it contains no certificate")?;
        let facts = CertificateFields::read(first).ok_or("the certificate cannot be read")?;
        if !facts.names.iter().any(|is_for| is_for == name) {
            let names = facts.names.join(", ");
            return Err(format!("the certificate is for \"{names}\""));
        }
        if facts.not_after.unix() <= now {
            return Err(format!("the certificate expired on {}", facts.not_after));
        }
        if facts.not_before.unix() > now {
            return Err(format!(
                "the certificate is not valid before {}: is the clock of this machine right?",
                facts.not_before
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|_| "it contains no private key")?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the certificate is for another key".to_owned()
            }
            error => format!("the certificate cannot be used: {error}"),
        })?;
        Ok(Self {
            not_before: facts.not_before.unix(),
            not_after: facts.not_after.unix(),
            authority_key: facts.authority_key,
            serial: facts.serial,
            certificate: Arc::new(Certificate {
                key: Arc::new(key),
                names: facts.names,
                not_before: facts.not_before.unix(),
                not_after: facts.not_after.unix(),
            }),
        })
    }
}

/// A pending challenge; it is answered until this is dropped.
pub struct PendingChallenge {
    issued: Arc<IssuedCertificates>,
    what: ChallengeKey,
}

enum ChallengeKey {
    Answer(String),
    Handshake(String),
}

impl Drop for PendingChallenge {
    fn drop(&mut self) {
        match &self.what {
            ChallengeKey::Answer(token) => drop(self.issued.answers.write().remove(token)),
            ChallengeKey::Handshake(name) => drop(self.issued.handshakes.write().remove(name)),
        }
    }
}

impl IssuedCertificates {
    /// Returns the store of this process.
    pub fn of_this_process() -> Arc<Self> {
        static ISSUED: LazyLock<Arc<IssuedCertificates>> = LazyLock::new(Arc::default);
        Arc::clone(&ISSUED)
    }

    /// Uses this certificate for the name from now on.
    pub fn show(&self, name: &str, issue: &IssuedCertificate) {
        let certificate = Arc::clone(&issue.certificate);
        self.certificates
            .write()
            .insert(name.to_owned(), certificate);
    }

    /// Removes certificates and states of all other names.
    pub fn keep_only(&self, names: &[String]) {
        self.certificates
            .write()
            .retain(|name, _| names.contains(name));
        self.renewals.lock().retain(|name, _| names.contains(name));
    }

    /// Updates the state of a name.
    pub fn note(&self, name: &str, change: impl FnOnce(&mut RenewalState)) {
        change(self.renewals.lock().entry(name.to_owned()).or_default());
    }

    /// Serves this key authorization for the token (http-01).
    pub fn answer(self: &Arc<Self>, token: &str, answer: &str) -> PendingChallenge {
        let token = token.to_owned();
        self.answers
            .write()
            .insert(token.clone(), answer.to_owned());
        PendingChallenge {
            issued: Arc::clone(self),
            what: ChallengeKey::Answer(token),
        }
    }

    /// Uses this certificate in handshakes for the name that offer `acme-tls/1` only (tls-alpn-01).
    pub fn answer_handshake(
        self: &Arc<Self>,
        name: &str,
        certificate: Vec<u8>,
        key: Vec<u8>,
    ) -> Result<PendingChallenge, String> {
        let key = PrivateKeyDer::try_from(key)?;
        let chain = vec![CertificateDer::from(certificate)];
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| error.to_string())?;
        // Key and certificate are not checked against each other: webpki rejects the critical
        // `acmeIdentifier` extension.
        let key = CertifiedKey::new(chain, key);
        let name = name.to_owned();
        self.handshakes.write().insert(name.clone(), Arc::new(key));
        Ok(PendingChallenge {
            issued: Arc::clone(self),
            what: ChallengeKey::Handshake(name),
        })
    }

    /// Returns the key authorization for an http-01 request target, if one is pending.
    pub(crate) fn answer_at(&self, target: &[u8]) -> Option<String> {
        let token = std::str::from_utf8(target.strip_prefix(WELL_KNOWN)?).ok()?;
        self.answers.read().get(token).cloned()
    }

    pub(super) fn handshake(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.handshakes
            .read()
            .get(&name.to_ascii_lowercase())
            .cloned()
    }

    pub(super) fn certificate(&self, name: &str) -> Option<Arc<Certificate>> {
        self.certificates.read().get(name).cloned()
    }

    /// Summary of the certificate for a name.
    pub(crate) fn report(&self, name: &str) -> CertificateReport {
        let renewal = self.renewals.lock().get(name).cloned();
        let certificate = self.certificate(name);
        CertificateReport {
            names: vec![name.to_owned()],
            expires: certificate.as_ref().map(|one| one.not_after),
            lifetime: certificate.map_or(0, |one| one.lifetime()),
            renewal: Some(renewal.unwrap_or_default()),
        }
    }
}

/// Leaves the private keys out.
impl fmt::Debug for IssuedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Issued")
    }
}
