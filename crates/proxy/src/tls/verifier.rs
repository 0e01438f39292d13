//! Verification of origin certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::x509::CertificateFields;

/// Accepts certificates issued by the trust anchors, and the configured certificates themselves.
///
/// `openssl req -x509` makes CA certificates, which webpki rejects as server certificates (RFC 5280
/// §4.2.1.9). An operator who configures such a certificate trusts the server that uses it.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) authorities: Arc<WebPkiServerVerifier>,
    /// Pinned certificates.
    pub(super) named: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Checks validity and name of a pinned certificate.
    fn verify_named(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let facts = CertificateFields::read(certificate).ok_or(CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < facts.not_before.unix() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > facts.not_after.unix() {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.authorities
                .verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.named.contains(certificate) =>
            {
                Self::verify_named(certificate, name, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
