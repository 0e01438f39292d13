//! The client certificates that a route requires.

use microcache_policy::glob;

use crate::tls::{ClientCertificate, has_kind_of_name};

/// The client certificates that a route requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CertificateRule {
    /// None.
    #[default]
    Off,
    /// One of a known authority.
    Any,
    /// One with a name that matches one of these patterns.
    Named(Vec<String>),
}

impl CertificateRule {
    /// Returns whether clients without a certificate may use the route.
    pub(crate) const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Returns whether a client with this certificate may use the route.
    pub(crate) fn admits(&self, certificate: Option<&ClientCertificate>) -> bool {
        let is_named = |patterns: &[String], certificate: &ClientCertificate| {
            let mut names = certificate.names();
            names.any(|name| {
                let mut patterns = patterns.iter();
                patterns.any(|pattern| glob::matches(pattern.as_bytes(), name.as_bytes()))
            })
        };
        match (self, certificate) {
            (Self::Off, _) | (Self::Any, Some(_)) => true,
            (Self::Named(patterns), Some(certificate)) => is_named(patterns, certificate),
            (_, None) => false,
        }
    }
}

/// Parses a pattern for one name of a certificate.
pub(super) fn certificate_name(text: &str) -> Result<String, String> {
    if !has_kind_of_name(text) {
        let form = "write \"required\", \"off\", or names as \"CN=ann\", \"OU=Staff\", \"DNS=*.example.org\", \
                    \"email=*@example.org\" or \"URI=spiffe://example.org/*\"";
        return Err(form.to_owned());
    }
    Ok(match text.strip_prefix("DNS=") {
        Some(host) => format!("DNS={}", host.to_ascii_lowercase()),
        None => text.to_owned(),
    })
}
