//! TLS with origins: trust anchors and client certificates.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};

use super::files::{CertificateFiles, TlsFileError, read_chain};
use super::provider;
use super::verifier::Verifier;

/// ALPN protocol of HTTP/1.
const HTTP1: &[u8] = b"http/1.1";
/// ALPN protocol of HTTP/2 (RFC 9113 §3.1).
pub(crate) const HTTP2: &[u8] = b"h2";

/// TLS with the servers of a group whose URLs begin with `https`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTls {
    /// Trust anchors (PEM), also pinned certificates; `None` uses those of the system.
    pub ca: Option<PathBuf>,
    /// Client certificate for mutual TLS.
    pub certificate: Option<CertificateFiles>,
    /// Expected name of their certificates; `None` uses the host of the URL.
    pub name: Option<String>,
    /// Client configuration, once the files have been read.
    pub(crate) ready: Option<LoadedOriginTls>,
}

/// A loaded client configuration. Two are equal if their certificates are.
#[derive(Clone, Debug)]
pub(crate) struct LoadedOriginTls {
    pub(crate) config: Arc<ClientConfig>,
    made_of: Vec<CertificateDer<'static>>,
}

impl PartialEq for LoadedOriginTls {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

impl Eq for LoadedOriginTls {}

impl LoadedOriginTls {
    /// The configuration with HTTP/2 offered by ALPN.
    pub(crate) fn offering_http2(&self) -> ClientConfig {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        config
    }
}

impl OriginTls {
    /// Loads the configured files, or the trust anchors of the system.
    pub(crate) fn load(&self, now: i64) -> Result<LoadedOriginTls, TlsFileError> {
        let mut made_of = match &self.ca {
            Some(file) => read_chain(file)?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        let (known, _) = roots.add_parsable_certificates(made_of.iter().cloned());
        if known == 0 {
            return Err(self.no_trust_anchors());
        }
        let builder = ClientConfig::builder_with_provider(provider());
        let versions = builder.with_safe_default_protocol_versions();
        let versions = versions
            .map_err(|error| TlsFileError::new(format!("TLS cannot be used: {error}"), ""))?;
        let authorities = WebPkiServerVerifier::builder_with_provider(roots.into(), provider());
        let verifier = Verifier {
            authorities: authorities.build().map_err(|_| self.no_trust_anchors())?,
            named: self.ca.iter().flat_map(|_| made_of.clone()).collect(),
        };
        let builder = versions
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let own = files.load(&provider(), now)?;
                made_of.extend(own.key.cert.iter().cloned());
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.key)))
            }
        };
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(LoadedOriginTls {
            config: Arc::new(config),
            made_of,
        })
    }

    fn no_trust_anchors(&self) -> TlsFileError {
        match &self.ca {
            Some(file) => TlsFileError::new(
                format!(
                    "no certificate in {} can be used to verify origins",
                    file.display()
                ),
                "set the file with the certificate of the authority, in PEM form",
            ),
            None => TlsFileError::new(
                "this machine has no CA certificates to verify origins",
                "install them (ca-certificates), or set the file of your own authority as `origin_ca`",
            ),
        }
    }
}
