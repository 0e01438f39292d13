//! Certificates of clients: the authorities that issue them, and the properties that rules and fields use.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::files::{TlsFileError, read_chain};
use super::provider;
use super::x509::CertificateFields;

/// Authorities whose certificates clients may present.
#[derive(Clone, Debug)]
pub(crate) struct ClientAuthorities {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Digest of their certificates.
    pub(super) fingerprint: String,
}

impl ClientAuthorities {
    /// Reads their certificates (PEM), which have to be valid at `now`, in seconds since 1970.
    pub(crate) fn read(file: &Path, now: i64) -> Result<Self, TlsFileError> {
        let all = read_chain(file)?;
        let name = file.display();
        let mut roots = RootCertStore::empty();
        for (index, one) in all.iter().enumerate() {
            let fields = CertificateFields::read(one);
            if roots.add(one.clone()).is_err() || fields.is_none() {
                return Err(TlsFileError::new(
                    format!("certificate {} in {name} cannot be read", index + 1),
                    "copy the file again, in PEM form",
                ));
            }
            if let Some(ended) = fields.map(|it| it.not_after).filter(|it| it.unix() < now) {
                return Err(TlsFileError::new(
                    format!("certificate {} in {name} expired on {ended}", index + 1),
                    "remove it from the file, or renew it",
                ));
            }
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        let verifier = verifier.allow_unauthenticated().build().map_err(|error| {
            TlsFileError::new(
                format!("the certificates in {name} cannot be used: {error}"),
                "set the file with the certificates of the authorities, in PEM form",
            )
        })?;
        Ok(Self {
            verifier,
            fingerprint: fingerprint(&all.iter().map(|one| &one[..]).collect::<Vec<_>>().concat()),
        })
    }

    /// Returns the certificate that a client has presented with these intermediates, if it is valid now. The client
    /// has proved that it has its key.
    pub(crate) fn verified(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Option<Arc<ClientCertificate>> {
        let (own, intermediates) = chain.split_first()?;
        let now = UnixTime::now();
        let verified = self.verifier.verify_client_cert(own, intermediates, now);
        verified.ok()?;
        ClientCertificate::read(chain).map(Arc::new)
    }
}

/// A verified certificate of a client.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    /// Certificate and intermediates, to verify it again after a reload.
    chain: Box<[CertificateDer<'static>]>,
    subject: String,
    fingerprint: String,
    /// Attributes of the subject and alternative names, such as `CN=ann` and `DNS=ann.example`.
    names: Vec<String>,
    /// Expiry, in seconds since 1970.
    not_after: i64,
}

impl ClientCertificate {
    fn read(chain: &[CertificateDer<'static>]) -> Option<Self> {
        let own = chain.first()?;
        let (_, certificate) = X509Certificate::from_der(own).ok()?;
        let attributes = certificate.subject().iter_attributes();
        let mut names: Vec<String> = attributes
            .map(|it| format!("{}={}", kind(it), String::from_utf8_lossy(it.as_slice())))
            .collect();
        for extension in certificate.extensions() {
            if let ParsedExtension::SubjectAlternativeName(listed) = extension.parsed_extension() {
                names.extend(listed.general_names.iter().filter_map(alternative_name));
            }
        }
        Some(Self {
            chain: chain.into(),
            subject: distinguished_name(certificate.subject()),
            fingerprint: fingerprint(own),
            names,
            not_after: certificate.validity().not_after.timestamp(),
        })
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Returns the subject in the form of RFC 4514, as nginx gives it: ASCII, the last attribute first.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the SHA-256 digest in hexadecimal.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns each attribute of the subject and each alternative name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns whether it has not expired since the handshake.
    pub(crate) fn is_valid(&self) -> bool {
        let now = UnixTime::now().as_secs();
        i64::try_from(now).is_ok_and(|now| now <= self.not_after)
    }
}

/// The names of attributes (RFC 4514 §3, RFC 2985), by object identifier.
const KINDS: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.11", "OU"),
    ("2.5.4.10", "O"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.6", "C"),
    ("2.5.4.5", "serialNumber"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The kinds of alternative names, as `openssl x509 -text` shows them.
const ALTERNATIVE_KINDS: [&str; 3] = ["DNS", "email", "URI"];

/// Returns whether a pattern for one of [`ClientCertificate::names`] begins with a kind of name.
pub(crate) fn has_kind_of_name(pattern: &str) -> bool {
    let kind = pattern.split_once('=').map(|(kind, _)| kind);
    let is_attribute = |kind: &str| KINDS.iter().any(|(_, known)| *known == kind);
    kind.is_some_and(|kind| is_attribute(kind) || ALTERNATIVE_KINDS.contains(&kind))
}

fn kind(attribute: &AttributeTypeAndValue<'_>) -> String {
    let id = attribute.attr_type().to_id_string();
    let known = KINDS.iter().find(|(known, _)| *known == id);
    known.map_or(id, |(_, name)| (*name).to_owned())
}

fn alternative_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS={}", name.to_ascii_lowercase())),
        GeneralName::RFC822Name(name) => Some(format!("email={name}")),
        GeneralName::URI(name) => Some(format!("URI={name}")),
        _ => None,
    }
}

/// Returns a name in the form of RFC 4514.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let attribute =
        |it: &AttributeTypeAndValue<'_>| format!("{}={}", kind(it), escaped(it.as_slice()));
    let parts = name
        .iter_rdn()
        .map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+"));
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts.join(",")
}

/// Returns a value with escapes, so that no value looks like another attribute or is anything but visible ASCII
/// (RFC 4514 §2.4).
fn escaped(value: &[u8]) -> String {
    let last = value.len().saturating_sub(1);
    let mut out = String::with_capacity(value.len());
    for (at, &byte) in value.iter().enumerate() {
        let is_special = matches!(byte, b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';')
            || byte == b'#' && at == 0
            || byte == b' ' && (at == 0 || at == last);
        if is_special {
            out.extend(['\\', char::from(byte)]);
        } else if matches!(byte, b' '..=b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "\\{byte:02X}");
        }
    }
    out
}

fn fingerprint(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn read(change: impl FnOnce(&mut CertificateParams)) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        ClientCertificate::read(&[made.der().clone()]).unwrap()
    }

    #[test]
    fn the_subject_is_written_as_by_nginx() {
        let made = read(|params| {
            let name = &mut params.distinguished_name;
            name.push(DnType::CountryName, "DE");
            name.push(DnType::OrganizationName, " Müller, OU=Admin+\"x\" ");
            name.push(
                DnType::CustomDnType(vec![1, 2, 3]),
                DnValue::Utf8String("#1".to_owned()),
            );
            name.push(DnType::CommonName, "ann\r\nX: y");
        });
        assert_eq!(
            made.subject(),
            r#"CN=ann\0D\0AX: y,1.2.3=\#1,O=\ M\C3\BCller\, OU=Admin\+\"x\"\ ,C=DE"#
        );
        assert!(made.is_valid());
        assert_eq!(made.fingerprint().len(), 64);
    }

    #[test]
    fn each_name_stands_alone() {
        let made = read(|params| {
            let name = &mut params.distinguished_name;
            name.push(DnType::CommonName, "ann,OU=Admin");
            name.push(DnType::OrganizationalUnitName, "Staff");
            let text = |text: &str| Ia5String::try_from(text).unwrap();
            params.subject_alt_names = vec![
                SanType::DnsName(text("Ann.Example")),
                SanType::Rfc822Name(text("ann@example.org")),
                SanType::URI(text("spiffe://example.org/ann")),
                SanType::IpAddress("192.0.2.1".parse().unwrap()),
            ];
        });
        let names: Vec<_> = made.names().collect();
        assert_eq!(
            names,
            [
                "CN=ann,OU=Admin",
                "OU=Staff",
                "DNS=ann.example",
                "email=ann@example.org",
                "URI=spiffe://example.org/ann"
            ]
        );
        for (pattern, expected) in [
            ("CN=*", true),
            ("emailAddress=a", true),
            ("URI=spiffe://*", true),
            ("DNS=*.example", true),
            ("DNS:*.example", false),
            ("cn=ann", false),
            ("ann", false),
            ("*", false),
            ("*=ann", false),
            ("/CN=ann", false),
        ] {
            assert_eq!(has_kind_of_name(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_certificate_without_names_has_an_empty_subject() {
        let made = read(|_| {});
        assert_eq!((made.subject(), made.names().count()), ("", 0));
    }
}
