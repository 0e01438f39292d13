//! Which certificate a client is shown.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

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
}

impl Certificate {
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
}

impl Certificates {
    /// The first one is the default. Of those for one name the first that a client can use is taken, so that there may be one for each kind of key.
    pub(crate) fn new(all: &[Arc<Certificate>]) -> Self {
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
        }
    }

    fn choose(&self, host: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Arc<Certificate>> {
        let host = host.map(str::to_ascii_lowercase);
        let own = host.as_deref().and_then(|host| {
            let parent = || host.split_once('.').map(|(_, parent)| parent);
            let exact = self.exact.get(host);
            exact.or_else(|| self.wildcard.get(parent()?))
        });
        let candidates = own.unwrap_or(&self.default);
        let usable = |one: &&Arc<Certificate>| one.key.key.choose_scheme(schemes).is_some();
        candidates.iter().find(usable)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.choose(hello.server_name(), hello.signature_schemes())?;
        CHOSEN.set(Some(Shown {
            certificate: Arc::clone(chosen),
            is_for_it: hello.server_name().is_some_and(|host| chosen.covers(host)),
        }));
        Some(Arc::clone(&chosen.key))
    }
}
