//! Certificates for the proxy, and clients that trust them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, PublicKeyData, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A file with a certificate and its key.
pub(crate) struct CertificateFile(PathBuf);

impl CertificateFile {
    /// For these hosts, and for some years.
    pub(crate) fn new(hosts: &[&str]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}-{number}.pem", std::process::id());
        let file = Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
        file.renew(hosts, 2100);
        file
    }

    /// One that is an authority's, as `openssl req -x509` makes them.
    pub(crate) fn of_an_authority(hosts: &[&str]) -> Self {
        let file = Self::new(hosts);
        file.make(hosts, 2100, IsCa::Ca(BasicConstraints::Unconstrained));
        file
    }

    /// Another certificate with another key in its place, until this year.
    pub(crate) fn renew(&self, hosts: &[&str], year: i32) {
        self.make(hosts, year, IsCa::NoCa);
    }

    fn make(&self, hosts: &[&str], year: i32, is_ca: IsCa) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(hosts).expect("names");
        params.is_ca = is_ca;
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let made = params.self_signed(&key).expect("a certificate");
        self.write(&format!("{}{}", made.pem(), key.serialize_pem()));
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("the file can be written");
        let secret = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&self.0, secret).expect("it is ours");
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn name(&self) -> &str {
        self.0.to_str().expect("a path")
    }

    /// Its public key, as it stands in the certificate.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let key = PrivateKeyDer::from_pem_file(&self.0).expect("a key");
        let key = KeyPair::try_from(&key).expect("a key");
        key.subject_public_key_info()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.0).expect("a certificate")
    }
}

/// A client that trusts these, as they are now, and remembers its sessions.
pub(crate) fn trusting(certificates: &[&CertificateFile]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.der()).expect("a root");
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}
