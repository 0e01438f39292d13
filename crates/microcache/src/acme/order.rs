//! An order: the authority validates a name, and issues a certificate for it.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier,
    KeyAuthorization, NewOrder, Order, OrderStatus, RetryPolicy,
};
use microcache_proxy::{IssuedCertificates, PendingChallenge};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio::time::timeout;

use super::authority::RetryAfter;
use super::failed::{Failed, Fault, ORDER, problem_text};

/// The timeout of a whole order.
const TIME_LIMIT: Duration = Duration::from_mins(5);
/// The maximum size of a chain, in PEM form.
const LARGEST_CHAIN: usize = 64 * 1024;
/// The timeout of a validation, and of the issuance.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// The type of challenge by which an authority validates a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validation {
    /// http-01: a request at port 80 (RFC 8555 §8.3).
    Http,
    /// tls-alpn-01: a handshake at port 443 (RFC 8737).
    Handshake,
}

/// The parameters of an order.
pub(super) struct OrderRequest<'a> {
    pub(super) name: &'a str,
    pub(super) profile: Option<&'a str>,
    pub(super) way: Validation,
    /// The certificate to replace, for authorities that track replacements.
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
    pub(super) issued: &'a Arc<IssuedCertificates>,
}

impl Validation {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Http => Self::Handshake,
            Self::Handshake => Self::Http,
        }
    }

    const fn kind(self) -> ChallengeType {
        match self {
            Self::Http => ChallengeType::Http01,
            Self::Handshake => ChallengeType::TlsAlpn01,
        }
    }

    /// The step, in words.
    const fn step(self) -> &'static str {
        match self {
            Self::Http => "the challenge over HTTP (http-01, port 80)",
            Self::Handshake => "the challenge over TLS (tls-alpn-01, port 443)",
        }
    }
}

impl OrderRequest<'_> {
    /// Obtains the chain and its key, in PEM form, not yet verified.
    pub(super) async fn order(&self, account: &Account) -> Result<String, Failed> {
        let heard = RetryAfter::default();
        let ordering = heard.listening(self.steps(account, &heard));
        timeout(TIME_LIMIT, ordering).await.unwrap_or_else(|_| {
            let why = format!("not completed within {} s", TIME_LIMIT.as_secs());
            Err(Failed::new(ORDER, Fault::Authority, why))
        })
    }

    async fn steps(&self, account: &Account, heard: &RetryAfter) -> Result<String, Failed> {
        let mut order = self.begin(account, heard).await?;
        let expected = self.authorize(&mut order, heard).await?;
        let step = self.way.step();
        let ready = order.poll_ready(&POLLING).await;
        let ready = ready.map_err(|error| Failed::of(step, &error, heard.last()).of_challenge())?;
        drop(expected);
        if ready == OrderStatus::Invalid {
            return Err(self.refused(&mut order).await);
        }
        let step = "issuing";
        let (csr, key) = request(self.name)
            .map_err(|error| Failed::new(step, Fault::Certificate, error.to_string()))?;
        let finalized = order.finalize_csr(&csr).await;
        finalized.map_err(|error| Failed::of(step, &error, heard.last()))?;
        let issued = order.poll_certificate(&POLLING).await;
        let chain = issued.map_err(|error| Failed::of(step, &error, heard.last()))?;
        if chain.len() > LARGEST_CHAIN {
            let why = format!("the chain is longer than {LARGEST_CHAIN} bytes");
            return Err(Failed::new(step, Fault::Certificate, why));
        }
        // Of several keys the first one counts, which is the local one.
        Ok(format!("{key}\n{chain}"))
    }

    async fn begin(&self, account: &Account, heard: &RetryAfter) -> Result<Order, Failed> {
        let names = [match self.name.parse() {
            Ok(address) => Identifier::Ip(address),
            Err(_) => Identifier::Dns(self.name.to_owned()),
        }];
        let mut wanted = NewOrder::new(&names);
        if let Some(profile) = self.profile {
            check_profile(profile, account.profiles().map(|offered| offered.name))?;
            wanted = wanted.profile(profile);
        }
        if let Some(replaces) = &self.replaces {
            wanted = wanted.replaces(replaces.clone());
        }
        let begun = account.new_order(&wanted).await;
        begun.map_err(|error| Failed::of(ORDER, &error, heard.last()))
    }

    /// Completes the challenges of the order. Their answers are served as long as the result lives.
    async fn authorize(
        &self,
        order: &mut Order,
        heard: &RetryAfter,
    ) -> Result<Vec<PendingChallenge>, Failed> {
        let step = self.way.step();
        let failed = |error: &_| Failed::of(step, error, heard.last()).of_challenge();
        let refused = |why: String| Failed::new(step, Fault::Challenge, why);
        let mut expected = Vec::new();
        if order.state().authorizations.len() > 1 {
            return Err(refused(
                "it demands the validation of several names".to_owned(),
            ));
        }
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| failed(&error))?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => return Err(refused(format!("the authorization is {other:?}"))),
            }
            let challenge = authorization.challenge(self.way.kind());
            let mut challenge = challenge
                .ok_or_else(|| refused("the authority does not offer this challenge".to_owned()))?;
            let shown = self.expect(&challenge.token, &challenge.key_authorization());
            expected.push(shown.map_err(refused)?);
            let ready = challenge.set_ready().await;
            ready.map_err(|error| failed(&error))?;
        }
        Ok(expected)
    }

    /// Publishes the answer to a challenge.
    fn expect(&self, token: &str, answer: &KeyAuthorization) -> Result<PendingChallenge, String> {
        match self.way {
            Validation::Http => Ok(self.issued.answer(token, answer.as_str())),
            Validation::Handshake => {
                let text = |error: rcgen::Error| error.to_string();
                let key = KeyPair::generate().map_err(text)?;
                let mut shown = CertificateParams::new([self.name.to_owned()]).map_err(text)?;
                let digest = answer.digest();
                shown.custom_extensions =
                    vec![CustomExtension::new_acme_identifier(digest.as_ref())];
                let shown = shown.self_signed(&key).map_err(text)?;
                self.issued.answer_handshake(
                    &server_name(self.name),
                    shown.der().to_vec(),
                    key.serialize_der(),
                )
            }
        }
    }

    /// The failure that the authority reports.
    async fn refused(&self, order: &mut Order) -> Failed {
        let mut why = None;
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if let Ok(state) = authorization.refresh().await {
                let errors = state.challenges.iter().filter_map(|one| one.error.as_ref());
                why = errors.map(problem_text).next().or(why);
            }
        }
        let why = why.unwrap_or_else(|| "the authority gives no reason".to_owned());
        Failed::new(self.way.step(), Fault::Challenge, why)
    }
}

/// Fails if an authority does not offer a profile.
fn check_profile<'a>(profile: &str, offered: impl Iterator<Item = &'a str>) -> Result<(), Failed> {
    let mut offered: Vec<_> = offered.collect();
    offered.sort_unstable();
    if offered.contains(&profile) {
        return Ok(());
    }
    let others = match &offered[..] {
        [] => "it offers none".to_owned(),
        offered => format!("it offers {}", offered.join(", ")),
    };
    let why = format!("the authority has no profile `{profile}` (acme_profile): {others}");
    Err(Failed::new(ORDER, Fault::Authority, why))
}

/// Returns the server name by which an authority validates a name in a handshake: for an address, which cannot be one,
/// its name in reverse DNS (RFC 8738 §6).
fn server_name(name: &str) -> String {
    match name.parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let mut reverse = String::new();
            for byte in address.octets().iter().rev() {
                let _ = write!(reverse, "{:x}.{:x}.", byte & 15, byte >> 4);
            }
            reverse + "ip6.arpa"
        }
        Err(_) => name.to_owned(),
    }
}

/// Returns a signing request, and its key in PEM form.
fn request(name: &str) -> Result<(Vec<u8>, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_validated_by_their_reverse_names() {
        assert_eq!(server_name("a.example"), "a.example");
        assert_eq!(server_name("192.0.2.10"), "10.2.0.192.in-addr.arpa");
        let six = "f.e.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        assert_eq!(server_name("2001:db8::ef"), six);
    }

    #[test]
    fn a_profile_that_is_not_offered_is_an_error_that_lists_those_that_are() {
        let check = |offered: &[&'static str]| check_profile("shortlived", offered.iter().copied());
        assert!(check(&["classic", "shortlived"]).is_ok());
        let failed = check(&["tlsserver", "classic"]).expect_err("not offered");
        assert!(
            failed.why.ends_with("it offers classic, tlsserver"),
            "{}",
            failed.why
        );
        let failed = check(&[]).expect_err("none is offered");
        assert!(failed.why.ends_with("it offers none"));
    }
}
