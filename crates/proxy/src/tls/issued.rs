//! Certificates that an authority has issued to this server while it runs, and what it is shown by which it sees that
//! the names are ours.
//!
//! There is one of it in a process, and a reload changes nothing about it: what was issued holds as long as it does. Who asks the
//! authority is not here; it puts in what it has got, and takes out what is over.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::certificates::Certificate;
use super::provider;
use super::x509::Facts;

/// Where an authority looks for what it has asked for (RFC 8555 §8.3).
const WELL_KNOWN: &[u8] = b"/.well-known/acme-challenge/";
/// The most certificates in a chain; authorities have three.
const LONGEST_CHAIN: usize = 10;

/// All that was issued, and what is under way.
#[derive(Default)]
pub struct Issued {
    /// By the name that each is for.
    certificates: RwLock<HashMap<String, Arc<Certificate>>>,
    /// What is answered at [`WELL_KNOWN`], by the token in the url.
    answers: RwLock<HashMap<String, String>>,
    /// What is shown in a handshake, by the name that it is about.
    handshakes: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    standings: Mutex<BTreeMap<String, Standing>>,
}

/// How things stand with the certificate for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// An order is under way.
    pub is_ordering: bool,
    /// Why the last one failed, if it did.
    pub trouble: Option<String>,
    /// When the next one is due, in seconds since 1970.
    pub next: Option<i64>,
    /// Orders since the start that brought a certificate.
    pub ordered: u64,
    /// Those that did not.
    pub failed: u64,
}

/// A certificate that clients may be shown, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReport {
    /// The hosts that it is for; `*.` stands for one label.
    pub names: Vec<String>,
    /// Until when it holds, in seconds since 1970; `None`: it was not issued yet.
    pub expires: Option<i64>,
    /// How things stand with those that are got from an authority.
    pub standing: Option<Standing>,
}

/// A certificate that was issued, and is good.
#[derive(Clone)]
pub struct Issue {
    certificate: Arc<Certificate>,
    /// From when it holds, in seconds since 1970.
    pub not_before: i64,
    /// Until when.
    pub not_after: i64,
    /// By which the authority knows its own key.
    pub authority_key: Vec<u8>,
    /// By which it knows this certificate.
    pub serial: Vec<u8>,
}

impl Issue {
    /// Reads a chain and its key in PEM form, and holds them against each other, against the name that they were asked
    /// for, and against the time in seconds since 1970. Says why if they are no good.
    pub fn read(pem: &str, name: &str, now: i64) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let chain = chain.map_err(|error| format!("the certificates cannot be read: {error}"))?;
        if chain.len() > LONGEST_CHAIN {
            return Err(format!("there are more than {LONGEST_CHAIN} certificates"));
        }
        let first = chain.first().ok_or("there is no certificate in it")?;
        let facts = Facts::read(first).ok_or("the certificate cannot be read")?;
        if !facts.names.iter().any(|is_for| is_for == name) {
            let names = facts.names.join(", ");
            return Err(format!("the certificate is for \"{names}\""));
        }
        if facts.not_after.unix() <= now {
            return Err(format!("the certificate expired on {}", facts.not_after));
        }
        if facts.not_before.unix() > now {
            return Err(format!(
                "the certificate holds from {} on only: is the clock of this machine right?",
                facts.not_before
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|_| "there is no private key")?;
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
                not_after: facts.not_after.unix(),
            }),
        })
    }
}

/// What an authority is about to look for. It is answered until this is dropped.
pub struct Expected {
    issued: Arc<Issued>,
    what: What,
}

enum What {
    Answer(String),
    Handshake(String),
}

impl Drop for Expected {
    fn drop(&mut self) {
        match &self.what {
            What::Answer(token) => drop(self.issued.answers.write().remove(token)),
            What::Handshake(name) => drop(self.issued.handshakes.write().remove(name)),
        }
    }
}

impl Issued {
    /// The one that this process has.
    pub fn of_this_process() -> Arc<Self> {
        static ISSUED: LazyLock<Arc<Issued>> = LazyLock::new(Arc::default);
        Arc::clone(&ISSUED)
    }

    /// Has clients shown this certificate from now on.
    pub fn show(&self, name: &str, issue: &Issue) {
        let certificate = Arc::clone(&issue.certificate);
        self.certificates
            .write()
            .insert(name.to_owned(), certificate);
    }

    /// Forgets all about names that are not among these.
    pub fn keep_only(&self, names: &[String]) {
        self.certificates
            .write()
            .retain(|name, _| names.contains(name));
        self.standings.lock().retain(|name, _| names.contains(name));
    }

    /// Notes how things stand with a name.
    pub fn note(&self, name: &str, change: impl FnOnce(&mut Standing)) {
        change(self.standings.lock().entry(name.to_owned()).or_default());
    }

    /// Answers this at the url with the token.
    pub fn answer(self: &Arc<Self>, token: &str, answer: &str) -> Expected {
        let token = token.to_owned();
        self.answers
            .write()
            .insert(token.clone(), answer.to_owned());
        Expected {
            issued: Arc::clone(self),
            what: What::Answer(token),
        }
    }

    /// Shows this certificate in handshakes about a name that offer nothing but the protocol of challenges.
    pub fn shake_hands(
        self: &Arc<Self>,
        name: &str,
        certificate: Vec<u8>,
        key: Vec<u8>,
    ) -> Result<Expected, String> {
        let key = PrivateKeyDer::try_from(key)?;
        let chain = vec![CertificateDer::from(certificate)];
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| error.to_string())?;
        // It is not held against its key: the extension that it has is one that nobody else understands.
        let key = CertifiedKey::new(chain, key);
        let name = name.to_owned();
        self.handshakes.write().insert(name.clone(), Arc::new(key));
        Ok(Expected {
            issued: Arc::clone(self),
            what: What::Handshake(name),
        })
    }

    /// What is to be answered at this target, if an authority is about to ask for it.
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

    /// What there is for a name.
    pub(crate) fn report(&self, name: &str) -> CertificateReport {
        let standing = self.standings.lock().get(name).cloned();
        CertificateReport {
            names: vec![name.to_owned()],
            expires: self.certificate(name).map(|one| one.not_after),
            standing: Some(standing.unwrap_or_default()),
        }
    }
}

/// Keys are nobody's to read.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Issued")
    }
}
