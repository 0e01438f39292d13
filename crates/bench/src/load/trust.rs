//! TLS client configuration: trust anchors and ALPN.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::error::LoadError;
use super::settings::{CertificateTrust, LoadProtocol, Settings};
use super::socket::TlsEndpoint;
use super::target::TargetServer;

/// Builds the TLS configuration shared by all connections.
///
/// # Errors
///
/// [`LoadError::Authorities`] if no CA certificate can be loaded.
pub(crate) fn config(settings: &Settings) -> Result<Arc<ClientConfig>, LoadError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| LoadError::Authorities(why.to_string()))?;
    let mut config = match &settings.trust {
        CertificateTrust::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth(),
        trust => builder
            .with_root_certificates(roots(trust)?)
            .with_no_client_auth(),
    };
    config.alpn_protocols = match settings.protocol {
        LoadProtocol::Http1 => vec![b"http/1.1".to_vec()],
        LoadProtocol::Http2 { .. } => vec![b"h2".to_vec()],
    };
    if !settings.keep_alive {
        // Without keep-alive every connection represents another client, so no session is resumed.
        config.resumption = rustls::client::Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Returns the TLS parameters of a server.
///
/// # Errors
///
/// [`LoadError::Handshake`] if its host is not a valid server name.
pub(crate) fn tls_endpoint(
    server: &TargetServer,
    config: &Arc<ClientConfig>,
) -> Result<TlsEndpoint, LoadError> {
    let name = ServerName::try_from(server.host.clone()).map_err(|_| LoadError::Handshake {
        server: server.clone(),
        why: "its host is not a valid name for TLS".to_owned(),
    })?;
    Ok(TlsEndpoint {
        config: Arc::clone(config),
        name,
    })
}

/// Performs one handshake, to report a configuration error early.
///
/// # Errors
///
/// [`LoadError::Handshake`] with a remedy if the certificate is not trusted or HTTP/2 is not negotiated.
pub(crate) fn check(
    server: &TargetServer,
    to: &TlsEndpoint,
    mut socket: TcpStream,
) -> Result<(), LoadError> {
    let refused = |why: String| LoadError::Handshake {
        server: server.clone(),
        why,
    };
    let mut session = ClientConnection::new(Arc::clone(&to.config), to.name.clone())
        .map_err(|why| refused(why.to_string()))?;
    while session.is_handshaking() {
        session
            .complete_io(&mut socket)
            .map_err(|why| refused(format!("the TLS handshake failed: {why}{}", remedy(&why))))?;
    }
    let wanted = to.config.alpn_protocols.first().map(Vec::as_slice);
    if wanted == Some(b"h2") && session.alpn_protocol() != wanted {
        return Err(refused(
            "it does not support HTTP/2; omit --http2".to_owned(),
        ));
    }
    Ok(())
}

/// Describes the remedy for an untrusted certificate.
fn remedy(why: &io::Error) -> &'static str {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "; pass its CA with --cacert FILE, or use --insecure"
        }
        _ => "",
    }
}

fn roots(trust: &CertificateTrust) -> Result<RootCertStore, LoadError> {
    let unreadable = |why: String| LoadError::Authorities(why);
    let mut roots = RootCertStore::empty();
    let certificates = match trust {
        CertificateTrust::File(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|why| unreadable(format!("{}: {why}", path.display())))?,
        _ => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(unreadable(
            "none found; pass --cacert FILE, or use --insecure".to_owned(),
        ));
    }
    Ok(roots)
}

/// Certificate verifier that accepts every certificate; the traffic of a load test is not confidential.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
