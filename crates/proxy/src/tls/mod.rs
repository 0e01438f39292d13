//! TLS: what clients are shown, how their sessions go on, and what is asked of origins.
//!
//! [`session`] moves bytes and knows no socket; `crate::connection` has both.

mod certificates;
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

pub(crate) use certificates::{Certificate, Certificates};
pub use files::CertificateFiles;
pub(crate) use files::{Fault, exposed, read_eab_key, read_secrets};
pub use issued::{CertificateReport, Expected, Issue, Issued, Standing};
pub(crate) use origins::HTTP2;
pub use origins::OriginTls;
pub(crate) use session::{HELD_BACK, Records, Session};
pub(crate) use tickets::Tickets;

/// What is spoken on top of TLS, the favourite first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What an authority offers alone that wants to see that a name is ours (RFC 8737).
const CHALLENGE: &[u8] = b"acme-tls/1";

/// The cryptography of both sides. A key exchange that a later quantum computer cannot undo comes first.
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

/// What sessions with clients begin with. TLS 1.2 and 1.3; what came before is refused.
pub(crate) fn for_clients(
    certificates: Arc<Certificates>,
    tickets: Arc<Tickets>,
    takes_challenges: bool,
) -> Result<Arc<ServerConfig>, Error> {
    let builder = ServerConfig::builder_with_provider(provider());
    let mut config = builder
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    if takes_challenges {
        config.alpn_protocols.push(CHALLENGE.to_vec());
    }
    // Clients keep their sessions themselves, as tickets.
    config.ticketer = tickets;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}
