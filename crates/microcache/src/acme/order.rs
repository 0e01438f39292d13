//! One order: the authority sees that a name is ours, and issues a certificate for it.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier,
    KeyAuthorization, NewOrder, Order, OrderStatus, RetryPolicy,
};
use microcache_proxy::{Expected, Issued};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio::time::timeout;

use super::authority::Heard;
use super::failed::{Failed, Fault, ORDER, said};

/// How long an order may take in all.
const PATIENCE: Duration = Duration::from_mins(5);
/// The longest chain, in PEM form.
const LARGEST_CHAIN: usize = 64 * 1024;
/// How long the authority may take to look, and to issue.
const POLLING: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(90));

/// How an authority sees that a name is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It asks for a url at port 80 (RFC 8555 §8.3).
    Http,
    /// It shakes hands at port 443 (RFC 8737).
    Handshake,
}

/// What is wanted of an authority.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) way: Way,
    /// The certificate that this one is to replace, where the authority wants to know.
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
    pub(super) issued: &'a Arc<Issued>,
}

impl Way {
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

    /// What was about to be done.
    const fn step(self) -> &'static str {
        match self {
            Self::Http => "the challenge over HTTP (http-01, port 80)",
            Self::Handshake => "the challenge over TLS (tls-alpn-01, port 443)",
        }
    }
}

impl Wanted<'_> {
    /// Gets it: the chain and its key, in PEM form. Nobody has looked at it yet.
    pub(super) async fn order(&self, account: &Account) -> Result<String, Failed> {
        let heard = Heard::default();
        let ordering = heard.listening(self.steps(account, &heard));
        timeout(PATIENCE, ordering).await.unwrap_or_else(|_| {
            let why = format!("it was not done in {} s", PATIENCE.as_secs());
            Err(Failed::new(ORDER, Fault::Authority, why))
        })
    }

    async fn steps(&self, account: &Account, heard: &Heard) -> Result<String, Failed> {
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
        // Of several keys the first one counts, and that is ours.
        Ok(format!("{key}\n{chain}"))
    }

    async fn begin(&self, account: &Account, heard: &Heard) -> Result<Order, Failed> {
        let names = [Identifier::Dns(self.name.to_owned())];
        let mut wanted = NewOrder::new(&names);
        if let Some(replaces) = &self.replaces {
            wanted = wanted.replaces(replaces.clone());
        }
        let begun = account.new_order(&wanted).await;
        begun.map_err(|error| Failed::of(ORDER, &error, heard.last()))
    }

    /// Has the authority look wherever it wants to. What it looks for is there as long as what is given.
    async fn authorize(&self, order: &mut Order, heard: &Heard) -> Result<Vec<Expected>, Failed> {
        let step = self.way.step();
        let failed = |error: &_| Failed::of(step, error, heard.last()).of_challenge();
        let refused = |why: String| Failed::new(step, Fault::Challenge, why);
        let mut expected = Vec::new();
        if order.state().authorizations.len() > 1 {
            return Err(refused("it wants more than one name to be ours".to_owned()));
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
            let mut challenge =
                challenge.ok_or_else(|| refused("the authority does not offer it".to_owned()))?;
            let shown = self.expect(&challenge.token, &challenge.key_authorization());
            expected.push(shown.map_err(refused)?);
            let ready = challenge.set_ready().await;
            ready.map_err(|error| failed(&error))?;
        }
        Ok(expected)
    }

    /// Answers what the authority is about to ask.
    fn expect(&self, token: &str, answer: &KeyAuthorization) -> Result<Expected, String> {
        match self.way {
            Way::Http => Ok(self.issued.answer(token, answer.as_str())),
            Way::Handshake => {
                let told = |error: rcgen::Error| error.to_string();
                let key = KeyPair::generate().map_err(told)?;
                let mut shown = CertificateParams::new([self.name.to_owned()]).map_err(told)?;
                let digest = answer.digest();
                shown.custom_extensions =
                    vec![CustomExtension::new_acme_identifier(digest.as_ref())];
                let shown = shown.self_signed(&key).map_err(told)?;
                self.issued
                    .shake_hands(self.name, shown.der().to_vec(), key.serialize_der())
            }
        }
    }

    /// What the authority says it has seen instead.
    async fn refused(&self, order: &mut Order) -> Failed {
        let mut why = None;
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if let Ok(state) = authorization.refresh().await {
                let errors = state.challenges.iter().filter_map(|one| one.error.as_ref());
                why = errors.map(said).next().or(why);
            }
        }
        let why = why.unwrap_or_else(|| "the authority does not say why".to_owned());
        Failed::new(self.way.step(), Fault::Challenge, why)
    }
}

/// What a certificate is asked for with, and its key in PEM form.
fn request(name: &str) -> Result<(Vec<u8>, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}
