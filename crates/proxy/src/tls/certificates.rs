//! Selection of the certificate for a client, by SNI and signature scheme.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;
use super::issued::IssuedCertificates;

thread_local! {
    /// Certificate selected in the handshake that this thread is processing; rustls does not report it to the
    /// session.
    static CHOSEN: RefCell<Option<SelectedCertificate>> = const { RefCell::new(None) };
    /// Address that the client of that handshake has reached; rustls does not know it.
    static REACHED: Cell<Option<IpAddr>> = const { Cell::new(None) };
}

/// Sets the address that the client of the next handshake step of this thread has reached.
pub(crate) fn set_reached(address: Option<IpAddr>) {
    REACHED.set(address.map(|address| address.to_canonical()));
}

/// Takes the certificate that was selected in the latest handshake step of this thread.
pub(super) fn take_chosen() -> Option<SelectedCertificate> {
    CHOSEN.take()
}

/// The certificate selected for a client.
#[derive(Clone, Debug)]
pub(super) struct SelectedCertificate {
    pub(super) certificate: Arc<Certificate>,
    /// It covers the host in the client's SNI.
    pub(super) is_for_it: bool,
}

/// All certificates that clients can be shown.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// Certificates for clients without SNI, or with a name that no certificate covers.
    default: Vec<Arc<Certificate>>,
    /// By DNS name or address; wildcards by what follows `*.`.
    exact: HashMap<String, Vec<Arc<Certificate>>>,
    wildcard: HashMap<String, Vec<Arc<Certificate>>>,
    /// ACME certificates, and the names for which they are used.
    issued: Option<(Arc<IssuedCertificates>, Vec<String>)>,
}

impl Certificates {
    /// Indexes the certificates by name; the first one is the default. Among those for one name, the first
    /// whose key type the client supports is used. ACME certificates come behind files for the same name, and
    /// before wildcards.
    pub(crate) fn new(
        all: &[Arc<Certificate>],
        issued: Option<(Arc<IssuedCertificates>, Vec<String>)>,
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

    fn choose(
        &self,
        host: Option<&str>,
        reached: Option<IpAddr>,
        schemes: &[SignatureScheme],
    ) -> Option<Arc<Certificate>> {
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
        } else if let Some(for_address) = self.for_address(reached).filter(|one| usable(&one)) {
            return Some(for_address);
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

    /// Certificate for a client without SNI, as for a URL with an address: that of the address that it reached, or else,
    /// as behind a router that maps addresses, the first issued one.
    fn for_address(&self, reached: Option<IpAddr>) -> Option<Arc<Certificate>> {
        let reached = reached.map(|address| address.to_string());
        let files = reached.as_ref().and_then(|name| self.exact.get(name));
        if let Some(file) = files.and_then(|files| files.first()) {
            return Some(Arc::clone(file));
        }
        let (issued, names) = self.issued.as_ref()?;
        let others = names.iter().filter(|name| name.parse::<IpAddr>().is_ok());
        let same = names.iter().filter(|name| reached.as_ref() == Some(name));
        same.chain(others).find_map(|name| issued.certificate(name))
    }

    /// Certificate of a pending tls-alpn-01 challenge (RFC 8737); `None` for any other handshake.
    fn challenge(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (issued, _) = self.issued.as_ref()?;
        // It offers nothing else (RFC 8737 §3).
        let is_alone = hello.alpn()?.count() == 1;
        issued.handshake(hello.server_name()?).filter(|_| is_alone)
    }
}

/// Returns true if the client offers `acme-tls/1` and no protocol for requests.
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
        let chosen = self.choose(
            hello.server_name(),
            REACHED.get(),
            hello.signature_schemes(),
        )?;
        CHOSEN.set(Some(SelectedCertificate {
            certificate: Arc::clone(&chosen),
            is_for_it: hello.server_name().is_some_and(|host| chosen.covers(host)),
        }));
        Some(Arc::clone(&chosen.key))
    }
}
