//! The certificate that the client of a connection has presented in its TLS handshake.

use rustls::pki_types::CertificateDer;

use super::Session;

impl Session {
    /// Takes over a certificate with its intermediates. A resumed session keeps that of its first handshake, which may
    /// have expired since.
    #[cold]
    pub(crate) fn take_client_certificate(&mut self, chain: &[CertificateDer<'static>]) {
        let authorities = self.shared.config.tls.authorities.as_ref();
        self.peer.certificate = authorities.and_then(|it| it.verified(chain));
    }

    /// Verifies the certificate again, by the authorities of another configuration.
    #[cold]
    pub(super) fn verify_client_certificate(&mut self) {
        if let Some(certificate) = self.peer.certificate.take() {
            self.take_client_certificate(certificate.chain());
        }
    }
}
