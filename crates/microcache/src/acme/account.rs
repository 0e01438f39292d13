//! The account with the authority: created once, and stored.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};
use microcache_proxy::config::AcmeConfig;
use rustls::ClientConfig;
use tokio::sync::Mutex;

use super::authority::{Authority, RetryAfter};
use super::failed::{Failed, Fault};
use super::storage::{ACCOUNT, Storage};

/// The time for which a failure is returned to other names without another attempt.
const BELIEVED: Duration = Duration::from_secs(20);

/// The account of this process, shared by all names.
#[derive(Default)]
pub(super) struct Accounts {
    /// The last failure, its expiry, and its authority.
    refused: Mutex<Option<(String, Instant, Failed)>>,
}

impl Accounts {
    /// Returns the account, and creates it if there is none. One task at a time does so; its result holds for those
    /// that waited.
    pub(super) async fn get(&self, config: &AcmeConfig) -> Result<Account, Failed> {
        let mut refused = self.refused.lock().await;
        if let Some((directory, until, failed)) = &*refused
            && *directory == config.directory
            && Instant::now() < *until
        {
            return Err(failed.clone());
        }
        let got = open(config).await;
        *refused = got.as_ref().err().map(|failed| {
            let until = Instant::now() + BELIEVED;
            (config.directory.clone(), until, failed.clone())
        });
        got
    }

    /// Clears the last failure, whose cause may have been repaired.
    pub(super) async fn ask_again(&self) {
        let mut refused = self.refused.lock().await;
        // A failure with Retry-After stays in force until that time.
        if refused
            .as_ref()
            .is_some_and(|(_, _, failed)| failed.retry_after.is_none())
        {
            *refused = None;
        }
    }
}

async fn open(config: &AcmeConfig) -> Result<Account, Failed> {
    let storage = Storage::of(config);
    let refused = |why: String| Failed::new("the account", Fault::Storage, why);
    let broken = |error: io::Error| {
        let file = storage.folder().join(ACCOUNT);
        refused(format!("{}: {error}", file.display()))
    };
    let tls = config
        .tls
        .as_ref()
        .ok_or_else(|| refused("no TLS".into()))?;
    let heard = RetryAfter::default();
    let failed = |error: &instant_acme::Error| Failed::of("the account", error, heard.last());
    let mut known = kept(&storage).map_err(broken)?;
    let mut lock = None;
    if known.is_none() {
        lock = storage.lock("account").map_err(broken)?;
        if lock.is_none() {
            return Err(refused("another process is creating it".into()));
        }
        // The previous holder of the lock may have created it.
        known = kept(&storage).map_err(broken)?;
    }
    if let Some(credentials) = known {
        drop(lock);
        let opening = builder(tls).from_credentials(credentials);
        return heard.listening(opening).await.map_err(|e| failed(&e));
    }
    let contact = config.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.as_deref().into_iter().collect();
    let account = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let binding = config.binding.as_ref();
    let binding = binding.map(|known| ExternalAccountKey::new(known.id.clone(), &known.key));
    let making = builder(tls).create(&account, config.directory.clone(), binding.as_ref());
    let (account, credentials) = heard.listening(making).await.map_err(|e| failed(&e))?;
    let kept = serde_json::to_string(&credentials).map_err(|error| refused(error.to_string()))?;
    storage.write_file(ACCOUNT, &kept).map_err(broken)?;
    Ok(account)
}

/// Returns the stored credentials. Unreadable ones are ignored, since a new account does as well.
fn kept(storage: &Storage) -> io::Result<Option<AccountCredentials>> {
    let kept = storage.read_file(ACCOUNT)?;
    Ok(kept.and_then(|kept| serde_json::from_str(&kept).ok()))
}

fn builder(tls: &Arc<ClientConfig>) -> AccountBuilder {
    let tls = Arc::clone(tls);
    Account::builder_with_http(Box::new(Authority { tls }))
}

/// Discards the account, which the authority does not know.
pub(super) fn forget(config: &AcmeConfig) {
    let _ = Storage::of(config).remove_file(ACCOUNT);
}

#[cfg(test)]
mod tests {
    use microcache_testkit::Folder;
    use rustls::RootCertStore;
    use rustls::crypto::aws_lc_rs::default_provider;

    use super::*;

    #[tokio::test]
    async fn one_process_makes_the_account_and_the_others_come_again() {
        let folder = Folder::absent();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let tls = builder.with_root_certificates(RootCertStore::empty());
        let mut config = AcmeConfig::default();
        config.directory = "https://127.0.0.1:1/directory".to_owned();
        config.storage = folder.path().to_owned();
        config.tls = Some(Arc::new(tls.with_no_client_auth()));
        let storage = Storage::of(&config);
        storage.prepare().unwrap();
        let lock = storage.lock("account").unwrap();
        let failed = open(&config).await.err().expect("it is being made");
        assert_eq!(failed.why, "another process is creating it");
        drop(lock);
        let failed = open(&config).await.err().expect("there is no authority");
        assert_eq!(failed.kind, Fault::Authority);
    }
}
