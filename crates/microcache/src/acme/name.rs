//! The task of one name, as long as it is configured.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use instant_acme::Account;
use microcache_proxy::config::AcmeConfig;
use microcache_proxy::{IssuedCertificate, IssuedCertificates, Kind, Notices};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::account::{self, Accounts};
use super::failed::{Failed, Fault};
use super::order::{OrderRequest, Validation};
use super::renewal::Renewal;
use super::schedule;
use super::storage::Storage;
use super::stored::load;

/// The maximum number of concurrent orders.
const ORDERS_AT_ONCE: usize = 4;
/// The maximum number of certificates of one name per hour, whatever the authority suggests.
const MOST_IN_AN_HOUR: usize = 3;
const HOUR: Duration = Duration::from_hours(1);
/// The maximum sleep, since the clock may be set.
const LOOK_AT_LEAST: Duration = Duration::from_mins(30);
/// The pause while another process obtains the same certificate.
const OTHERS_TURN: Duration = Duration::from_secs(5);

/// The state shared by all names.
pub(super) struct SharedState {
    notices: Notices,
    /// The active configuration, and the challenges that the listeners can answer.
    config: Mutex<(AcmeConfig, Validation)>,
    accounts: Accounts,
    orders: Semaphore,
    issued: Arc<IssuedCertificates>,
    /// The number of reloads.
    rounds: watch::Sender<u64>,
}

impl SharedState {
    pub(super) fn new(notices: Notices) -> Self {
        Self {
            notices,
            config: Mutex::new((AcmeConfig::default(), Validation::Http)),
            accounts: Accounts::default(),
            orders: Semaphore::new(ORDERS_AT_ONCE),
            issued: IssuedCertificates::of_this_process(),
            rounds: watch::channel(0).0,
        }
    }

    /// Applies a configuration to all names. Authorities connect to ports 80 and 443.
    pub(super) fn take_up(&self, config: AcmeConfig, plain: &[u16], secure: &[u16]) {
        let by_handshake = secure.contains(&443) && !plain.contains(&80);
        let way = if by_handshake {
            Validation::Handshake
        } else {
            Validation::Http
        };
        *self.config() = (config, way);
        self.rounds.send_modify(|round| *round += 1);
    }

    fn config(&self) -> MutexGuard<'_, (AcmeConfig, Validation)> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The manager of one name's certificate.
pub(super) struct Keeper {
    name: String,
    together: Arc<SharedState>,
    woken: watch::Receiver<u64>,
    /// The current certificate, and its storage.
    held: Option<(Storage, IssuedCertificate)>,
    /// A certificate that could not be stored yet.
    unsaved: Option<String>,
    renewal: Renewal,
    /// Failures since the last order that brought a certificate.
    failures: u32,
    /// The next type of challenge, after a first attempt.
    way: Option<Validation>,
    /// The times of the last certificates.
    recent: VecDeque<Instant>,
}

/// The outcome of an attempt to obtain a certificate.
enum OrderOutcome {
    /// A new certificate.
    Got,
    /// Another process is obtaining it.
    Elsewhere,
}

impl Keeper {
    pub(super) fn new(name: &str, together: Arc<SharedState>) -> Self {
        Self {
            name: name.to_owned(),
            woken: together.rounds.subscribe(),
            together,
            held: None,
            unsaved: None,
            renewal: Renewal::default(),
            failures: 0,
            way: None,
            recent: VecDeque::new(),
        }
    }

    /// Manages the certificate, as long as it is polled.
    pub(super) async fn keep(mut self) {
        loop {
            let (config, way) = self.together.config().clone();
            self.look_up(&Storage::of(&config));
            let due = self.due(&config).await;
            self.note(|standing| standing.next = Some(due));
            let wait = until(due);
            if !wait.is_zero() {
                let wait = wait.min(until(self.renewal.ask_at()));
                if self.wait(wait.min(LOOK_AT_LEAST)).await {
                    self.renewal.ask_again();
                }
                continue;
            }
            self.note(|standing| standing.is_ordering = true);
            let done = self.attempt(&config, way).await;
            self.note(|standing| standing.is_ordering = false);
            match done {
                Ok(OrderOutcome::Got) => self.got(&config),
                Ok(OrderOutcome::Elsewhere) => drop(self.wait(OTHERS_TURN).await),
                Err(failed) => self.failed(&failed, &config).await,
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut microcache_proxy::RenewalState)) {
        self.together.issued.note(&self.name, change);
    }

    fn say(&self, kind: Kind, what: &str) {
        let line = format!("{}: {what}", self.name);
        self.together.notices.say(kind, &self.name, line);
    }

    /// Waits for a time or for a reload; returns whether it was a reload.
    async fn wait(&mut self, time: Duration) -> bool {
        let woken = tokio::select! {
            () = sleep(time) => false,
            // It fails only at the end, when this task is ended anyway.
            changed = self.woken.changed() => changed.is_ok(),
        };
        if woken {
            self.together.accounts.ask_again().await;
        }
        woken
    }

    /// Loads the stored certificate of this authority. That of another authority is used until there is one.
    fn look_up(&mut self, storage: &Storage) {
        if self.held.as_ref().is_some_and(|(kept, _)| kept == storage) {
            return;
        }
        let kept = load(storage, &self.name).ok().flatten();
        self.held = kept.map(|issue| (storage.clone(), issue));
        self.renewal = Renewal::default();
        self.unsaved = None;
    }

    /// Returns the time of the next order; at once if there is no certificate.
    async fn due(&mut self, config: &AcmeConfig) -> i64 {
        let Some((_, issue)) = self.held.as_ref().filter(|_| self.unsaved.is_none()) else {
            return schedule::now();
        };
        if self.renewal.ask_at() <= schedule::now() {
            let accounts = &self.together.accounts;
            self.renewal.ask(accounts, config, issue).await;
        }
        self.recent.retain(|issued| issued.elapsed() < HOUR);
        let due = self.renewal.due(issue);
        match self.recent.front() {
            Some(first) if self.recent.len() >= MOST_IN_AN_HOUR => {
                let left = HOUR.saturating_sub(first.elapsed()).as_secs();
                due.max(schedule::now() + left.cast_signed())
            }
            _ => due,
        }
    }

    async fn attempt(
        &mut self,
        config: &AcmeConfig,
        way: Validation,
    ) -> Result<OrderOutcome, Failed> {
        let storage = Storage::of(config);
        let broken = |error: io::Error| {
            let why = format!("{}: {error}", storage.folder().display());
            Failed::new("storing it", Fault::Storage, why)
        };
        storage.prepare().map_err(broken)?;
        let Some(_lock) = storage.lock(&self.name).map_err(broken)? else {
            return Ok(OrderOutcome::Elsewhere);
        };
        if let Some(pem) = &self.unsaved {
            storage.write(&self.name, pem).map_err(broken)?;
            self.unsaved = None;
            return Ok(OrderOutcome::Got);
        }
        // Another process may have obtained it meanwhile.
        if let Ok(Some(kept)) = load(&storage, &self.name)
            && self.is_newer(&kept)
        {
            self.hold(storage, kept);
            return Ok(OrderOutcome::Got);
        }
        storage.probe(&self.name).map_err(broken)?;
        let pem = self.order(config, way).await?;
        let issue = IssuedCertificate::read(&pem, &self.name, schedule::now());
        let issue =
            issue.map_err(|why| Failed::new("the issued certificate", Fault::Certificate, why))?;
        self.together.issued.show(&self.name, &issue);
        self.recent.push_back(Instant::now());
        self.note(|standing| standing.ordered += 1);
        self.hold(storage.clone(), issue);
        if let Err(error) = storage.write(&self.name, &pem) {
            // It is usable all the same, and authorities limit their number.
            self.unsaved = Some(pem);
            return Err(broken(error));
        }
        Ok(OrderOutcome::Got)
    }

    fn is_newer(&self, kept: &IssuedCertificate) -> bool {
        let held = self.held.as_ref();
        held.is_none_or(|(_, held)| held.serial != kept.serial)
    }

    fn hold(&mut self, storage: Storage, issue: IssuedCertificate) {
        self.held = Some((storage, issue));
        self.renewal = Renewal::default();
    }

    /// Obtains the chain and the key, not yet verified.
    async fn order(&mut self, config: &AcmeConfig, way: Validation) -> Result<String, Failed> {
        let together = Arc::clone(&self.together);
        let _turn = together.orders.acquire().await;
        let held = self.held.as_ref();
        let mut replaces = held.and_then(|(_, issue)| self.renewal.replaces(issue));
        let mut account = together.accounts.get(config).await?;
        let mut is_known = true;
        loop {
            let wanted = |way| OrderRequest {
                name: &self.name,
                profile: config.profile.as_deref(),
                way,
                replaces: replaces.clone(),
                issued: &together.issued,
            };
            let way = self.way.unwrap_or(way);
            let is_first = self.failures == 0;
            match try_ways(&account, wanted, way, is_first).await {
                Err((failed, _)) if failed.kind == Fault::Account && is_known => {
                    // The authority has forgotten the account: a new one is needed.
                    account::forget(config);
                    account = together.accounts.get(config).await?;
                    is_known = false;
                }
                // The authority may not know the replaced certificate, or no longer.
                Err((failed, _)) if replaces.is_some() && failed.is_of_order() => replaces = None,
                Ok((pem, way)) => {
                    self.way = Some(way);
                    return Ok(pem);
                }
                Err((failed, way)) => {
                    if failed.kind == Fault::Challenge {
                        self.way = Some(way.other());
                    }
                    return Err(failed);
                }
            }
        }
    }

    fn got(&mut self, config: &AcmeConfig) {
        self.failures = 0;
        let Some((_, issue)) = &self.held else {
            return;
        };
        let (expires, due) = (issue.not_after, self.renewal.due(issue));
        self.note(|standing| standing.trouble = None);
        let line = format!(
            "certificate from {} in use, expires {}; renewal from {} on, or as the authority suggests",
            config.directory,
            schedule::shown(expires),
            schedule::shown(due)
        );
        self.say(Kind::Certificate, &line);
    }

    /// Reports a failure, and waits for the next attempt.
    async fn failed(&mut self, failed: &Failed, config: &AcmeConfig) {
        self.failures = self.failures.saturating_add(1);
        let pause = schedule::pause(self.failures, failed);
        // The clock may be set meanwhile: the time is only for the message.
        let again = Instant::now() + pause;
        let next = schedule::now() + pause.as_secs().cast_signed();
        let trouble = format!("{}: {}", failed.step, failed.why);
        let meanwhile = match &self.held {
            _ if self.unsaved.is_some() => "the new one is in use, but not stored".to_owned(),
            Some((_, held)) => format!(
                "the current one expires {}",
                schedule::shown(held.not_after)
            ),
            None => "its TLS connections are refused".to_owned(),
        };
        let line = format!(
            "no certificate from {}: {trouble}; next attempt {}; until then {meanwhile}",
            config.directory,
            schedule::shown(next)
        );
        self.say(Kind::NoCertificate, &line);
        self.note(|standing| {
            standing.trouble = Some(trouble);
            standing.next = Some(next);
            standing.failed += 1;
        });
        loop {
            let left = again.saturating_duration_since(Instant::now());
            let woken = self.wait(left).await;
            // A Retry-After holds for the authority that sent it, and not for another one.
            let is_other = self.together.config().0.directory != config.directory;
            if again <= Instant::now() || woken && (failed.retry_after.is_none() || is_other) {
                return;
            }
        }
    }
}

/// Orders with one type of challenge, and with the other one if the validation fails. Returns the type used last.
async fn try_ways<'a>(
    account: &Account,
    wanted: impl Fn(Validation) -> OrderRequest<'a>,
    way: Validation,
    both: bool,
) -> Result<(String, Validation), (Failed, Validation)> {
    let first = match wanted(way).order(account).await {
        Ok(pem) => return Ok((pem, way)),
        Err(failed) if !both || failed.kind != Fault::Challenge => return Err((failed, way)),
        Err(failed) => failed,
    };
    let other = way.other();
    let second = wanted(other).order(account).await;
    second.map(|pem| (pem, other)).map_err(|second| {
        let why = format!("{}; {}: {}", first.why, second.step, second.why);
        let failed = Failed {
            retry_after: second.retry_after.or(first.retry_after),
            ..Failed::new(first.step, Fault::Challenge, why)
        };
        (failed, other)
    })
}

/// Returns the time left.
fn until(unix: i64) -> Duration {
    Duration::from_secs(unix.saturating_sub(schedule::now()).max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retries follow elapsed time, even if the wall clock is set back repeatedly.
    #[tokio::test(start_paused = true)]
    async fn a_failed_order_is_retried_in_time_by_any_clock() {
        let together = SharedState::new(Notices::default());
        let mut keeper = Keeper::new("a.example", Arc::new(together));
        let failed = Failed::new("the order", Fault::Authority, "it is away");
        let began = Instant::now();
        keeper.failed(&failed, &AcmeConfig::default()).await;
        let waited = began.elapsed();
        let about_half_a_minute = Duration::from_secs(20)..Duration::from_secs(40);
        assert!(about_half_a_minute.contains(&waited), "{waited:?}");
    }
}
