//! When an authority wants a certificate to be renewed (RFC 9773). It may want that early, because it has to revoke it.

use std::time::Duration;

use instant_acme::{CertificateIdentifier, Error};
use microcache_proxy::Issue;
use microcache_proxy::config::AcmeConfig;
use rustls::pki_types::Der;
use tokio::time::timeout;

use super::account::Accounts;
use super::schedule;

/// How long it may take to hear of it.
const PATIENCE: Duration = Duration::from_mins(1);
/// The authority is asked so often at most, and so often at least, in seconds, whatever it says of that.
const MOST_OFTEN: i64 = 10 * 60;
const LEAST_OFTEN: i64 = 24 * 60 * 60;

/// What is known of that, of one certificate.
#[derive(Default)]
pub(super) struct Renewal {
    /// The window, and the time in it that was chosen.
    chosen: Option<((i64, i64), i64)>,
    /// When the authority is to be asked again, in seconds since 1970; at once if it was never asked.
    ask_at: i64,
    /// It knows the certificate, and wants to hear what is replaced.
    is_known: bool,
}

impl Renewal {
    /// When it is to be renewed.
    pub(super) fn due(&self, issue: &Issue) -> i64 {
        let chosen = self.chosen.map(|(_, chosen)| chosen);
        schedule::renewal(issue.not_before, issue.not_after, chosen)
    }

    /// When the authority is to be asked again.
    pub(super) const fn ask_at(&self) -> i64 {
        self.ask_at
    }

    /// Has it asked at once.
    pub(super) const fn ask_again(&mut self) {
        self.ask_at = 0;
    }

    /// What an order is to say that it replaces.
    pub(super) fn replaces(&self, issue: &Issue) -> Option<CertificateIdentifier<'static>> {
        (self.is_known && !issue.authority_key.is_empty()).then(|| identifier(issue))
    }

    /// Asks the authority. Where that cannot be done, what was known before holds.
    pub(super) async fn ask(&mut self, accounts: &Accounts, config: &AcmeConfig, issue: &Issue) {
        self.ask_at = schedule::now() + MOST_OFTEN;
        if issue.authority_key.is_empty() {
            self.ask_at = schedule::now() + LEAST_OFTEN;
            return;
        }
        let asking = async {
            let account = accounts.get(config).await.ok()?;
            Some(account.renewal_info(&identifier(issue)).await)
        };
        match timeout(PATIENCE, asking).await {
            Ok(Some(Ok((info, after)))) => {
                let window = &info.suggested_window;
                let window = (window.start.unix_timestamp(), window.end.unix_timestamp());
                if self.chosen.is_none_or(|(known, _)| known != window) {
                    self.chosen = Some((window, schedule::within(window.0, window.1)));
                }
                let after = i64::try_from(after.as_secs()).unwrap_or(LEAST_OFTEN);
                self.ask_at = schedule::now() + after.clamp(MOST_OFTEN, LEAST_OFTEN);
                self.is_known = true;
            }
            Ok(Some(Err(Error::Unsupported(_)))) => self.ask_at = schedule::now() + LEAST_OFTEN,
            _ => {}
        }
    }
}

/// RFC 9773 §4.1.
fn identifier(issue: &Issue) -> CertificateIdentifier<'static> {
    let (authority, serial) = (&issue.authority_key, &issue.serial);
    CertificateIdentifier::new(Der::from_slice(authority), Der::from_slice(serial)).into_owned()
}
