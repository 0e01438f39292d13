//! Which servers are believed to be who they say.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// By these authorities, or those of the system (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`).
pub(super) fn config(cacert: Option<&Path>) -> Result<ClientConfig, String> {
    let certificates = match cacert {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|why| format!("--cacert {}: {why}", path.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if let Some(path) = cacert.filter(|_| roots.is_empty()) {
        let path = path.display();
        return Err(format!(
            "--cacert {path}: there is no certificate in it, in PEM form"
        ));
    }
    // Without any, http is spoken all the same, and https says that nobody is believed.
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|why| format!("TLS cannot be spoken: {why}"))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
