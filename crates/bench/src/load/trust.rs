//! TLS: which certificates are believed, and what is spoken on it.

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
use super::http1::TlsTo;
use super::settings::{Protocol, Settings, Trust};
use super::target::Server;

/// The client's side of every handshake.
pub(crate) fn config(settings: &Settings) -> Result<Arc<ClientConfig>, LoadError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| LoadError::Authorities(why.to_string()))?;
    let mut config = match &settings.trust {
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believe(provider)))
            .with_no_client_auth(),
        trust => builder
            .with_root_certificates(roots(trust)?)
            .with_no_client_auth(),
    };
    config.alpn_protocols = match settings.protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 { .. } => vec![b"h2".to_vec()],
    };
    if !settings.keep_alive {
        // Each connection pays for a handshake of its own, as those of so many clients would.
        config.resumption = rustls::client::Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// What TLS needs to know about one server.
pub(crate) fn to(server: &Server, config: &Arc<ClientConfig>) -> Result<TlsTo, LoadError> {
    let name = ServerName::try_from(server.host.clone()).map_err(|_| LoadError::Handshake {
        server: server.clone(),
        why: "its name cannot stand in a certificate".to_owned(),
    })?;
    Ok(TlsTo {
        config: Arc::clone(config),
        name,
    })
}

/// Shakes hands once, so that what is wrong is told once.
pub(crate) fn try_out(server: &Server, to: &TlsTo, mut socket: TcpStream) -> Result<(), LoadError> {
    let refused = |why: String| LoadError::Handshake {
        server: server.clone(),
        why,
    };
    let mut session = ClientConnection::new(Arc::clone(&to.config), to.name.clone())
        .map_err(|why| refused(why.to_string()))?;
    while session.is_handshaking() {
        session
            .complete_io(&mut socket)
            .map_err(|why| refused(format!("TLS fails: {why}{}", remedy(&why))))?;
    }
    let wanted = to.config.alpn_protocols.first().map(Vec::as_slice);
    if wanted == Some(b"h2") && session.alpn_protocol() != wanted {
        return Err(refused(
            "it does not speak HTTP/2; leave --http2 away".to_owned(),
        ));
    }
    Ok(())
}

/// What to do about a certificate that is not believed.
fn remedy(why: &io::Error) -> &'static str {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "; name its authority with --cacert FILE, or use --insecure"
        }
        _ => "",
    }
}

fn roots(trust: &Trust) -> Result<RootCertStore, LoadError> {
    let unreadable = |why: String| LoadError::Authorities(why);
    let mut roots = RootCertStore::empty();
    let certificates = match trust {
        Trust::File(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|why| unreadable(format!("{}: {why}", path.display())))?,
        _ => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(unreadable(
            "there are none; give a file with --cacert, or use --insecure".to_owned(),
        ));
    }
    Ok(roots)
}

/// Believes every certificate; what is measured is not secret.
#[derive(Debug)]
struct Believe(Arc<CryptoProvider>);

impl ServerCertVerifier for Believe {
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
