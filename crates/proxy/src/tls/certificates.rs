//! Which certificate a client is shown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::issued::{CertificateReport, Issued};

thread_local! {
    /// What the handshake that this thread is in the middle of has chosen: rustls does not tell the session.
    static CHOSEN: RefCell<Option<Shown>> = const { RefCell::new(None) };
}

/// What was chosen in the handshake that this thread has just looked at.
pub(super) fn take_chosen() -> Option<Shown> {
    CHOSEN.take()
}

/// What a client is shown.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) certificate: Arc<Certificate>,
    /// It is for the host that the client has named.
    pub(super) is_for_it: bool,
}

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The hosts that it is for, in lower case; `*.` stands for one label.
    pub(super) names: Vec<String>,
    /// Until when it holds, in seconds since 1970.
    pub(super) not_after: i64,
}

impl Certificate {
    /// What those are told who watch.
    pub(crate) fn report(&self) -> CertificateReport {
        CertificateReport {
            names: self.names.clone(),
            expires: Some(self.not_after),
            standing: None,
        }
    }

    /// Whether it is for this host, which is without a port.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

/// All there are.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Those for clients who name no host, or one that no certificate is for.
    default: Vec<Arc<Certificate>>,
    /// By name; those with a `*.` by what follows it.
    exact: HashMap<String, Vec<Arc<Certificate>>>,
    wildcard: HashMap<String, Vec<Arc<Certificate>>>,
    /// Those that an authority has issued, and for which names they are to be shown.
    issued: Option<(Arc<Issued>, Vec<String>)>,
}

impl Certificates {
    /// The first one is the default. Of those for one name the first that a client can use is taken, so that there may be one for each kind of key.
    /// Those that are issued come behind files for the same name, and before those with a `*.`.
    pub(crate) fn new(
        all: &[Arc<Certificate>],
        issued: Option<(Arc<Issued>, Vec<String>)>,
    ) -> Self {
        let mut exact: HashMap<String, Vec<_>> = HashMap::new();
        let mut wildcard: HashMap<String, Vec<_>> = HashMap::new();
        for certificate in all {
            for name in &certificate.names {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(suffix) => (&mut wildcard, suffix),
                    None => (&mut exact, name.as_str()),
                };
                let listed = names.entry(name.to_owned()).or_default();
                listed.push(Arc::clone(certificate));
            }
        }
        let like_first =
            |one: &&Arc<Certificate>| all.first().is_some_and(|first| first.names == one.names);
        Self {
            default: all.iter().filter(like_first).cloned().collect(),
            exact,
            wildcard,
            issued,
        }
    }

    fn choose(&self, host: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<Certificate>> {
        let host = host.map(str::to_ascii_lowercase);
        let usable = |one: &&Arc<Certificate>| one.key.key.choose_scheme(schemes).is_some();
        if let Some(host) = host.as_deref() {
            let parent = || host.split_once('.').map(|(_, parent)| parent);
            if let Some(exact) = self.exact.get(host) {
                return exact.iter().find(usable).cloned();
            }
            if let Some(issued) = self.issued_for(host) {
                return Some(issued).filter(|one| usable(&one));
            }
            if let Some(like_it) = parent().and_then(|parent| self.wildcard.get(parent)) {
                return like_it.iter().find(usable).cloned();
            }
        }
        let default = self.default.iter().find(usable).cloned();
        default.or_else(|| {
            let (issued, names) = self.issued.as_ref()?;
            let first = names.iter().find_map(|name| issued.certificate(name));
            first.filter(|one| usable(&one))
        })
    }

    fn issued_for(&self, host: &str) -> Option<Arc<Certificate>> {
        let (issued, names) = self.issued.as_ref()?;
        let wanted = names.iter().any(|name| name == host);
        wanted.then(|| issued.certificate(host)).flatten()
    }

    /// What an authority is shown that wants to see that a name is ours (RFC 8737): `None` if somebody else asks, who is shown nothing.
    fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (issued, _) = self.issued.as_ref()?;
        // It offers nothing else (RFC 8737 §3).
        let is_alone = hello.alpn()?.count() == 1;
        issued.handshake(hello.server_name()?).filter(|_| is_alone)
    }
}

/// Whether a client offers the protocol of challenges, and none that requests could come by.
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    let offers = || hello.alpn().into_iter().flatten();
    offers().any(|offer| offer == super::CHALLENGE)
        && !offers().any(|offer| super::PROTOCOLS.contains(&offer))
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if is_challenge(&hello) {
            return self.challenge(&hello);
        }
        let chosen = self.choose(hello.server_name(), hello.signature_schemes())?;
        CHOSEN.set(Some(Shown {
            certificate: Arc::clone(&chosen),
            is_for_it: hello.server_name().is_some_and(|host| chosen.covers(host)),
        }));
        Some(Arc::clone(&chosen.key))
    }
}
