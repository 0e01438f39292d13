//! TLS: certificates for clients, sessions and tickets, ACME challenges, and TLS to origins.

mod certificate;
mod certificates;
mod client_certificate;
mod files;
mod issued;
mod origins;
mod session;
#[cfg(test)]
mod tests;
mod tickets;
mod verifier;
mod x509;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::NoServerSessionStorage;
use rustls::{Error, ServerConfig};

pub(crate) use certificate::Certificate;
pub use certificate::{CertificateReport, RenewalState};
pub(crate) use certificates::{Certificates, set_reached};
pub(crate) use client_certificate::{ClientAuthorities, ClientCertificate, has_kind_of_name};
pub use files::CertificateFiles;
pub(crate) use files::{TlsFileError, exposed, read_eab_key, read_secrets};
pub use issued::{IssuedCertificate, IssuedCertificates, PendingChallenge};
pub(crate) use origins::HTTP2;
pub use origins::OriginTls;
pub(crate) use session::{HELD_BACK, RecordBuffer, TlsSession};
use tickets::BoundTickets;
pub(crate) use tickets::Tickets;

/// ALPN protocols offered to clients, in order of preference (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// ALPN protocol of tls-alpn-01 challenges (RFC 8737).
const CHALLENGE: &[u8] = b"acme-tls/1";

/// Returns the cryptographic provider for clients and origins; post-quantum key exchange is preferred.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![
        aws_lc_rs::kx_group::X25519MLKEM768,
        aws_lc_rs::kx_group::X25519,
        aws_lc_rs::kx_group::SECP256R1,
        aws_lc_rs::kx_group::SECP384R1,
    ];
    Arc::new(provider)
}

/// Builds the configuration of sessions with clients: TLS 1.2 and 1.3. Clients are asked for certificates of
/// `authorities`, and need not have one.
pub(crate) fn for_clients(
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    authorities: Option<&ClientAuthorities>,
    takes_challenges: bool,
) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => builder.with_client_cert_verifier(Arc::clone(&authorities.verifier)),
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    if takes_challenges {
        config.alpn_protocols.push(CHALLENGE.to_vec());
    }
    // Clients keep their sessions themselves, as tickets.
    let bound_to = authorities.map(|it| it.fingerprint.clone());
    config.ticketer = Arc::new(BoundTickets::new(tickets, bound_to.unwrap_or_default()));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
