//! The fields of an X.509 certificate that the server needs: validity, names, serial, authority key.
//!
//! Reads the operator's own files only. Clients verify everything else (RFC 5280).

use std::fmt;
use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFields {
    pub(super) not_before: CertificateTime,
    pub(super) not_after: CertificateTime,
    /// DNS names in lower case, of which `*.` matches one label, and addresses.
    pub(super) names: Vec<String>,
    /// Serial number, as encoded.
    pub(super) serial: Vec<u8>,
    /// Authority key identifier; empty if absent.
    pub(super) authority_key: Vec<u8>,
}

/// A time in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CertificateTime(ASN1Time);

impl CertificateFields {
    /// Parses a certificate (DER); `None` if it is malformed.
    pub(super) fn read(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let (mut names, mut authority_key) = (Vec::new(), Vec::new());
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(listed) => {
                    names.extend(listed.general_names.iter().filter_map(host_name));
                }
                ParsedExtension::AuthorityKeyIdentifier(authority) => {
                    let key = authority.key_identifier.as_ref();
                    authority_key = key.map(|key| key.0.to_vec()).unwrap_or_default();
                }
                _ => {}
            }
        }
        let validity = certificate.validity();
        Some(Self {
            not_before: CertificateTime(validity.not_before),
            not_after: CertificateTime(validity.not_after),
            names,
            serial: certificate.raw_serial().to_vec(),
            authority_key,
        })
    }
}

fn host_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

impl CertificateTime {
    /// Seconds since 1970.
    pub(super) fn unix(self) -> i64 {
        self.0.timestamp()
    }
}

impl fmt::Display for CertificateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_datetime().date().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn the_fields_of_a_certificate_are_parsed() {
        let names = ["Example.org", "*.example.org", "192.0.2.1", "2001:DB8::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2051, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = CertificateFields::read(certificate.der()).unwrap();
        let names = ["example.org", "*.example.org", "192.0.2.1", "2001:db8::1"];
        assert_eq!(facts.names, names);
        assert_eq!(facts.not_before.unix(), 1_709_164_800);
        assert_eq!(facts.not_before.to_string(), "2024-02-29");
        // From 2050 on years have four digits.
        assert_eq!(facts.not_after.unix(), 2_556_144_000);
        assert_eq!(facts.not_after.to_string(), "2051-01-01");
    }

    #[test]
    fn truncated_and_changed_certificates_are_refused_without_panic() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["a".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        for length in 0..certificate.len() {
            assert_eq!(
                CertificateFields::read(&certificate[..length]),
                None,
                "{length}"
            );
        }
        for at in 0..certificate.len() {
            for value in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = certificate.clone();
                changed[at] = value;
                let _ = CertificateFields::read(&changed);
            }
        }
    }
}
