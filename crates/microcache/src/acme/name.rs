//! What is done for one name, for as long as it is in the configuration.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use instant_acme::Account;
use microcache_proxy::config::AcmeConfig;
use microcache_proxy::{Issue, Issued, Kind, Notices};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::account::{self, Accounts};
use super::failed::{Failed, Fault};
use super::order::{Wanted, Way};
use super::renewal::Renewal;
use super::schedule;
use super::storage::Storage;

/// Orders of different names at a time.
const ORDERS_AT_ONCE: usize = 4;
/// Certificates that one name gets in an hour at most, whatever its authority says of renewing them.
const MOST_IN_AN_HOUR: usize = 3;
const HOUR: Duration = Duration::from_hours(1);
/// The longest that nothing is looked at: the clock may have been set.
const LOOK_AT_LEAST: Duration = Duration::from_mins(30);
/// How long another process that is getting the same certificate is left to it before it is looked at again.
const OTHERS_TURN: Duration = Duration::from_secs(5);

/// What all names have in common.
pub(super) struct Together {
    notices: Notices,
    /// What is in force, and how authorities come in, as far as can be seen from here.
    config: Mutex<(AcmeConfig, Way)>,
    accounts: Accounts,
    orders: Semaphore,
    issued: Arc<Issued>,
    /// How often something was taken up.
    rounds: watch::Sender<u64>,
}

impl Together {
    pub(super) fn new(notices: Notices) -> Self {
        Self {
            notices,
            config: Mutex::new((AcmeConfig::default(), Way::Http)),
            accounts: Accounts::default(),
            orders: Semaphore::new(ORDERS_AT_ONCE),
            issued: Issued::of_this_process(),
            rounds: watch::channel(0).0,
        }
    }

    /// Has this hold from now on, and has all names look at it. Authorities come to the ports 80 and 443.
    pub(super) fn take_up(&self, config: AcmeConfig, plain: &[u16], secure: &[u16]) {
        let by_handshake = secure.contains(&443) && !plain.contains(&80);
        let way = if by_handshake {
            Way::Handshake
        } else {
            Way::Http
        };
        *self.config() = (config, way);
        self.rounds.send_modify(|round| *round += 1);
    }

    fn config(&self) -> MutexGuard<'_, (AcmeConfig, Way)> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the certificate of one name good.
pub(super) struct Keeper {
    name: String,
    together: Arc<Together>,
    woken: watch::Receiver<u64>,
    /// What clients are shown, and where it is kept.
    held: Option<(Storage, Issue)>,
    /// What could not be kept yet.
    unsaved: Option<String>,
    renewal: Renewal,
    /// Failures since the last order that brought a certificate.
    failures: u32,
    /// The way that is gone next, if one was gone before.
    way: Option<Way>,
    /// When the last certificates were issued.
    recent: VecDeque<Instant>,
}

/// What an attempt came to.
enum Done {
    /// There is another certificate.
    Got,
    /// Somebody else is at it.
    Elsewhere,
}

impl Keeper {
    pub(super) fn new(name: &str, together: Arc<Together>) -> Self {
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

    /// Looks after it, for as long as it is polled.
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
                Ok(Done::Got) => self.got(&config),
                Ok(Done::Elsewhere) => drop(self.wait(OTHERS_TURN).await),
                Err(failed) => self.failed(&failed, &config).await,
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut microcache_proxy::Standing)) {
        self.together.issued.note(&self.name, change);
    }

    fn say(&self, kind: Kind, what: &str) {
        let line = format!("{}: {what}", self.name);
        self.together.notices.say(kind, &self.name, line);
    }

    /// Waits, or until somebody has everything looked at again: says whether it is that.
    async fn wait(&mut self, time: Duration) -> bool {
        let woken = tokio::select! {
            () = sleep(time) => false,
            // It fails at the end only, and then whoever started this ends it.
            changed = self.woken.changed() => changed.is_ok(),
        };
        if woken {
            self.together.accounts.ask_again().await;
        }
        woken
    }

    /// Takes up what is kept there, if nothing is held that was kept there. What another authority has issued is shown
    /// until there is something of this one.
    fn look_up(&mut self, storage: &Storage) {
        if self.held.as_ref().is_some_and(|(kept, _)| kept == storage) {
            return;
        }
        let kept = super::load(storage, &self.name).ok().flatten();
        self.held = kept.map(|issue| (storage.clone(), issue));
        self.renewal = Renewal::default();
        self.unsaved = None;
    }

    /// When the next one is to be asked for; at once if there is none.
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

    async fn attempt(&mut self, config: &AcmeConfig, way: Way) -> Result<Done, Failed> {
        let storage = Storage::of(config);
        let broken = |error: io::Error| {
            let why = format!("{}: {error}", storage.folder().display());
            Failed::new("keeping it", Fault::Storage, why)
        };
        storage.prepare().map_err(broken)?;
        let Some(_lock) = storage.lock(&self.name).map_err(broken)? else {
            return Ok(Done::Elsewhere);
        };
        if let Some(pem) = &self.unsaved {
            storage.write(&self.name, pem).map_err(broken)?;
            self.unsaved = None;
            return Ok(Done::Got);
        }
        // Another process may have got it while this one waited.
        if let Ok(Some(kept)) = super::load(&storage, &self.name)
            && self.is_newer(&kept)
        {
            self.hold(storage, kept);
            return Ok(Done::Got);
        }
        storage.probe(&self.name).map_err(broken)?;
        let pem = self.order(config, way).await?;
        let issue = Issue::read(&pem, &self.name, schedule::now());
        let issue = issue.map_err(|why| Failed::new("what was issued", Fault::Certificate, why))?;
        self.together.issued.show(&self.name, &issue);
        self.recent.push_back(Instant::now());
        self.note(|standing| standing.ordered += 1);
        self.hold(storage.clone(), issue);
        if let Err(error) = storage.write(&self.name, &pem) {
            // It is good all the same, and the authority gives only so many.
            self.unsaved = Some(pem);
            return Err(broken(error));
        }
        Ok(Done::Got)
    }

    fn is_newer(&self, kept: &Issue) -> bool {
        let held = self.held.as_ref();
        held.is_none_or(|(_, held)| held.serial != kept.serial)
    }

    fn hold(&mut self, storage: Storage, issue: Issue) {
        self.held = Some((storage, issue));
        self.renewal = Renewal::default();
    }

    /// Gets the chain and the key. Nobody has looked at them yet.
    async fn order(&mut self, config: &AcmeConfig, way: Way) -> Result<String, Failed> {
        let together = Arc::clone(&self.together);
        let _turn = together.orders.acquire().await;
        let held = self.held.as_ref();
        let mut replaces = held.and_then(|(_, issue)| self.renewal.replaces(issue));
        let mut account = together.accounts.get(config).await?;
        let mut is_known = true;
        loop {
            let wanted = |way| Wanted {
                name: &self.name,
                way,
                replaces: replaces.clone(),
                issued: &together.issued,
            };
            let way = self.way.unwrap_or(way);
            let is_first = self.failures == 0;
            match try_ways(&account, wanted, way, is_first).await {
                Err((failed, _)) if failed.kind == Fault::Account && is_known => {
                    // It has forgotten us, and knows us again if we come anew.
                    account::forget(config);
                    account = together.accounts.get(config).await?;
                    is_known = false;
                }
                // What is replaced may be news to it, or too old.
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
            "a certificate of {} is shown, which holds until {}; it is renewed from {} on, or when the authority says",
            config.directory,
            schedule::shown(expires),
            schedule::shown(due)
        );
        self.say(Kind::Certificate, &line);
    }

    /// Tells why there is none, and waits until it is worth trying again.
    async fn failed(&mut self, failed: &Failed, config: &AcmeConfig) {
        self.failures = self.failures.saturating_add(1);
        let pause = schedule::pause(self.failures, failed);
        // The clock may be set in the meantime: what it will say is for people only.
        let again = Instant::now() + pause;
        let next = schedule::now() + pause.as_secs().cast_signed();
        let trouble = format!("{}: {}", failed.step, failed.why);
        let meanwhile = match &self.held {
            _ if self.unsaved.is_some() => {
                "the new one is shown, but lost at the end of this process".to_owned()
            }
            Some((_, held)) => format!(
                "the one there is holds until {}",
                schedule::shown(held.not_after)
            ),
            None => "clients who name it are refused".to_owned(),
        };
        let line = format!(
            "no certificate from {}: {trouble}; tried again at {}; until then {meanwhile}",
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
            // Whoever has said when to come again is not asked before; another authority is.
            let is_other = self.together.config().0.directory != config.directory;
            if again <= Instant::now() || woken && (failed.retry_after.is_none() || is_other) {
                return;
            }
        }
    }
}

/// Orders in one way, and in the other one too if the authority could not see that the name is ours. Says which way was the
/// last.
async fn try_ways<'a>(
    account: &Account,
    wanted: impl Fn(Way) -> Wanted<'a>,
    way: Way,
    both: bool,
) -> Result<(String, Way), (Failed, Way)> {
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

/// How long it is until then.
fn until(unix: i64) -> Duration {
    Duration::from_secs(unix.saturating_sub(schedule::now()).max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test's time passes, and the clock stands still: as if somebody set it back again and again.
    #[tokio::test(start_paused = true)]
    async fn what_has_failed_is_tried_again_in_time_whatever_the_clock_says() {
        let together = Together::new(Notices::default());
        let mut keeper = Keeper::new("a.example", Arc::new(together));
        let failed = Failed::new("the order", Fault::Authority, "it is away");
        let began = Instant::now();
        keeper.failed(&failed, &AcmeConfig::default()).await;
        let waited = began.elapsed();
        let about_half_a_minute = Duration::from_secs(20)..Duration::from_secs(40);
        assert!(about_half_a_minute.contains(&waited), "{waited:?}");
    }
}
