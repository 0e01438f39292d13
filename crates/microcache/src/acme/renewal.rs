//! The renewal time that an authority suggests (RFC 9773), which may be early because of a revocation.

use std::time::Duration;

use instant_acme::{CertificateIdentifier, Error};
use microcache_proxy::IssuedCertificate;
use microcache_proxy::config::AcmeConfig;
use rustls::pki_types::Der;
use tokio::time::timeout;

use super::account::Accounts;
use super::schedule;

/// The timeout of a request for it.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// The bounds of the polling interval in seconds, whatever the authority suggests.
const MOST_OFTEN: i64 = 10 * 60;
const LEAST_OFTEN: i64 = 24 * 60 * 60;

/// The renewal information of one certificate.
#[derive(Default)]
pub(super) struct Renewal {
    /// The suggested window, and the time chosen within it.
    chosen: Option<((i64, i64), i64)>,
    /// The time of the next poll, in seconds since 1970; at once if there was none.
    ask_at: i64,
    /// The authority knows the certificate, and tracks replacements.
    is_known: bool,
}

impl Renewal {
    /// Returns the time of the renewal.
    pub(super) fn due(&self, issue: &IssuedCertificate) -> i64 {
        let chosen = self.chosen.map(|(_, chosen)| chosen);
        schedule::renewal(issue.not_before, issue.not_after, chosen)
    }

    /// Returns the time of the next poll.
    pub(super) const fn ask_at(&self) -> i64 {
        self.ask_at
    }

    /// Schedules a poll at once.
    pub(super) const fn ask_again(&mut self) {
        self.ask_at = 0;
    }

    /// Returns the identifier that an order gives as replaced.
    pub(super) fn replaces(
        &self,
        issue: &IssuedCertificate,
    ) -> Option<CertificateIdentifier<'static>> {
        (self.is_known && !issue.authority_key.is_empty()).then(|| identifier(issue))
    }

    /// Polls the authority. If that fails, the earlier information stays.
    pub(super) async fn ask(
        &mut self,
        accounts: &Accounts,
        config: &AcmeConfig,
        issue: &IssuedCertificate,
    ) {
        self.ask_at = schedule::now() + MOST_OFTEN;
        if issue.authority_key.is_empty() {
            self.ask_at = schedule::now() + LEAST_OFTEN;
            return;
        }
        let asking = async {
            let account = accounts.get(config).await.ok()?;
            Some(account.renewal_info(&identifier(issue)).await)
        };
        match timeout(TIME_LIMIT, asking).await {
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
fn identifier(issue: &IssuedCertificate) -> CertificateIdentifier<'static> {
    let (authority, serial) = (&issue.authority_key, &issue.serial);
    CertificateIdentifier::new(Der::from_slice(authority), Der::from_slice(serial)).into_owned()
}
