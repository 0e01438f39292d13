//! Certificates for clients: expiry, and the state of ACME orders.

use std::time::{SystemTime, UNIX_EPOCH};

use microcache_proxy::{CertificateReport, Handle};
use serde_json::{Value, json};

/// Maximum remaining time, in seconds, at which the health check warns: three weeks. Automatic renewal of a
/// certificate for 90 days happens nine days before.
const SOON: i64 = 21 * 24 * 60 * 60;

/// Returns the remaining time, in seconds, below which the health check warns about a certificate with this lifetime:
/// three tenths of it, two days of a certificate for six. The Prometheus rule is the same.
fn soon(lifetime: i64) -> i64 {
    SOON.min(lifetime / 10 * 3)
}

/// State of one certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Valid.
    Valid,
    /// Expired.
    Expired,
    /// No certificate yet.
    Missing,
    /// An order is in progress.
    Ordering,
    /// The last order failed; the previous certificate stays in use.
    Failed,
}

impl State {
    fn of(report: &CertificateReport, now: i64) -> Self {
        let renewal = report.renewal.as_ref();
        match report.expires {
            _ if renewal.is_some_and(|renewal| renewal.is_ordering) => Self::Ordering,
            _ if renewal.is_some_and(|renewal| renewal.trouble.is_some()) => Self::Failed,
            None => Self::Missing,
            Some(expires) if expires <= now => Self::Expired,
            Some(_) => Self::Valid,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Missing => "missing",
            Self::Ordering => "ordering",
            Self::Failed => "failed",
        }
    }
}

/// Lists all certificates.
pub(crate) fn view(handle: &Handle) -> Vec<Value> {
    let now = now();
    let one = |report: &CertificateReport| {
        let renewal = report.renewal.as_ref();
        json!({
            "names": report.names,
            "source": if renewal.is_some() { "acme" } else { "file" },
            "state": State::of(report, now).as_str(),
            "expires": report.expires,
            "last_error": renewal.and_then(|renewal| renewal.trouble.clone()),
            "next": renewal.and_then(|renewal| renewal.next),
            "ordered": renewal.map(|renewal| renewal.ordered),
            "failed": renewal.map(|renewal| renewal.failed),
        })
    };
    handle.certificates().iter().map(one).collect()
}

/// Warnings about certificates that are missing or about to expire.
pub(crate) fn warnings(handle: &Handle) -> Vec<String> {
    let now = now();
    let one = |report: &CertificateReport| {
        let names = report.names.join(", ");
        let trouble = report.renewal.as_ref().and_then(|s| s.trouble.as_ref());
        match (report.expires, trouble) {
            (None, _) => Some(format!("{names}: no certificate yet")),
            (Some(expires), _) if expires <= now => {
                Some(format!("{names}: the certificate has expired"))
            }
            (Some(expires), _) if expires - now < soon(report.lifetime) => {
                let left = match (expires - now) / 3600 {
                    hours @ ..72 => format!("{hours} h"),
                    hours => format!("{} days", hours / 24),
                };
                Some(format!("{names}: the certificate expires in {left}"))
            }
            // The reason is in the statistics only, which require authorization.
            (Some(_), Some(_)) => {
                Some(format!("{names}: the certificate could not be renewed yet"))
            }
            (Some(_), None) => None,
        }
    };
    handle.certificates().iter().filter_map(one).collect()
}

/// Unix time in seconds.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use microcache_proxy::RenewalState;

    use super::*;

    #[test]
    fn warnings_scale_with_the_lifetime() {
        const HOUR: i64 = 3600;
        let day = 24 * HOUR;
        for (lifetime, expected) in [
            (160 * HOUR, 48 * HOUR),
            (47 * day, 14 * day + 2 * HOUR + 24 * 60),
            (90 * day, 21 * day),
            (365 * day, 21 * day),
        ] {
            assert_eq!(soon(lifetime), expected, "{lifetime}");
        }
    }

    #[test]
    fn a_failure_is_reported_before_the_certificate_expires_and_an_order_while_it_is_pending() {
        let of = |expires, renewal| {
            let report = CertificateReport {
                names: vec!["a.example".to_owned()],
                expires,
                lifetime: 0,
                renewal,
            };
            State::of(&report, 1000).as_str()
        };
        let failed = RenewalState {
            trouble: Some("no".to_owned()),
            ..RenewalState::default()
        };
        let ordering = RenewalState {
            is_ordering: true,
            ..failed.clone()
        };
        assert_eq!(of(Some(1001), None), "valid");
        assert_eq!(of(Some(1000), None), "expired");
        assert_eq!(of(None, Some(RenewalState::default())), "missing");
        assert_eq!(of(Some(2000), Some(RenewalState::default())), "valid");
        assert_eq!(of(Some(2000), Some(failed)), "failed");
        assert_eq!(of(None, Some(ordering)), "ordering");
    }
}
