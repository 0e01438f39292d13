//! One certificate, and its summary for the status API.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

/// A certificate with its key.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// DNS names in lower case, of which `*.` matches one label, and addresses.
    pub(super) names: Vec<String>,
    /// Begin of its validity, in seconds since 1970.
    pub(super) not_before: i64,
    /// Expiry, in seconds since 1970.
    pub(super) not_after: i64,
}

impl Certificate {
    /// Summary for the status API.
    pub(crate) fn report(&self) -> CertificateReport {
        CertificateReport {
            names: self.names.clone(),
            expires: Some(self.not_after),
            lifetime: self.lifetime(),
            renewal: None,
        }
    }

    /// Length of its validity in seconds.
    pub(super) const fn lifetime(&self) -> i64 {
        self.not_after.saturating_sub(self.not_before)
    }

    /// Returns true if it covers this host, given without a port.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let parent = host.split_once('.').map(|(_, parent)| parent);
        self.names.iter().any(|name| match name.strip_prefix("*.") {
            Some(suffix) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(suffix)),
            None => name.eq_ignore_ascii_case(host),
        })
    }
}

/// State of the ACME certificate for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalState {
    /// An order is under way.
    pub is_ordering: bool,
    /// Error of the last order, if it failed.
    pub trouble: Option<String>,
    /// Time of the next order, in seconds since 1970.
    pub next: Option<i64>,
    /// Orders since the start that brought a certificate.
    pub ordered: u64,
    /// Failed orders since the start.
    pub failed: u64,
}

/// Summary of a certificate, for the status API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReport {
    /// Hosts of the certificate; `*.` matches one label.
    pub names: Vec<String>,
    /// Expiry, in seconds since 1970; `None` if it has not been issued yet.
    pub expires: Option<i64>,
    /// Length of its validity in seconds; 0 without a certificate.
    pub lifetime: i64,
    /// Order state of an ACME certificate.
    pub renewal: Option<RenewalState>,
}
