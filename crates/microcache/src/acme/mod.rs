//! Certificates that are got from an authority and renewed by themselves (ACME, RFC 8555).
//!
//! A thread of its own asks the authority, a task for each name, and puts what it gets where handshakes look for it
//! ([`Issued`]). Serving waits for none of it, and a name that fails keeps no other one waiting.

mod account;
mod authority;
mod failed;
mod name;
mod order;
mod renewal;
mod schedule;
mod storage;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread;

use microcache_proxy::config::{AcmeConfig, Config};
use microcache_proxy::{Handle, Issue, Issued, Kind, Notices, Stage};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use name::{Keeper, Together};
use storage::Storage;

/// What looks after certificates.
#[derive(Clone)]
pub(crate) struct Acme {
    notices: Notices,
    handle: Arc<OnceLock<Handle>>,
    /// How often somebody has had everything looked at again; `None` at the end.
    wake: watch::Sender<Option<u64>>,
    runs: Arc<OnceLock<()>>,
}

impl Acme {
    pub(crate) fn new(notices: &Notices) -> Self {
        Self {
            notices: notices.clone(),
            handle: Arc::default(),
            wake: watch::channel(Some(0)).0,
            runs: Arc::default(),
        }
    }

    /// Has clients shown what was got before, and remembers which server it is for.
    pub(crate) fn begin(&self, handle: Handle) {
        let config = handle.config();
        let storage = Storage::of(&config.acme);
        for name in &config.acme.names {
            match load(&storage, name) {
                Ok(_) => {}
                Err(why) => {
                    let line = format!("{name}: {why}; another one is asked for");
                    self.notices.say(Kind::NoCertificate, name, line);
                }
            }
        }
        let _ = self.handle.set(handle);
    }

    /// What the server has come to.
    pub(crate) fn on_stage(&self, stage: Stage) {
        match stage {
            Stage::Ready => self.look(),
            Stage::Reloading => {}
            // Whoever serves from now on looks after them.
            Stage::Replaced(_) | Stage::Stopping => drop(self.wake.send_replace(None)),
        }
    }

    /// Takes up what is in force now, and has what failed tried again.
    fn look(&self) {
        let Some(handle) = self.handle.get() else {
            return;
        };
        if handle.config().acme.is_on() && self.runs.set(()).is_ok() {
            let (handle, notices) = (handle.clone(), self.notices.clone());
            let woken = self.wake.subscribe();
            let run = move || run(&handle, &notices, woken);
            if let Err(error) = thread::Builder::new().name("acme".to_owned()).spawn(run) {
                let line = format!("no certificates are asked for: {error}");
                self.notices.say(Kind::NoCertificate, "", line);
            }
            return;
        }
        self.wake.send_modify(|round| {
            if let Some(round) = round {
                *round += 1;
            }
        });
    }
}

/// What is kept for a name, if it is good: clients are shown it.
fn load(storage: &Storage, name: &str) -> Result<Option<Issue>, String> {
    let stored = storage.read(name);
    let stored = stored.map_err(|error| format!("what is kept cannot be read: {error}"))?;
    let Some(pem) = stored else {
        return Ok(None);
    };
    let issue = Issue::read(&pem, name, schedule::now());
    let issue = issue.map_err(|why| format!("what is kept is no good: {why}"))?;
    Issued::of_this_process().show(name, &issue);
    Ok(Some(issue))
}

/// Looks after all names until the end.
fn run(handle: &Handle, notices: &Notices, mut woken: watch::Receiver<Option<u64>>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let line = format!("no certificates are asked for: {error}");
            return notices.say(Kind::NoCertificate, "", line);
        }
    };
    runtime.block_on(async {
        let together = Arc::new(Together::new(notices.clone()));
        let mut keepers: HashMap<String, AbortHandle> = HashMap::new();
        while woken.borrow_and_update().is_some() {
            let config: Arc<Config> = handle.config();
            let names = &config.acme.names;
            let plain = ports(&config.listen);
            together.take_up(config.acme.clone(), &plain, &ports(&config.tls.listen));
            keepers.retain(|name, keeper| {
                let stays = names.contains(name) && !keeper.is_finished();
                if !stays {
                    keeper.abort();
                }
                stays
            });
            Issued::of_this_process().keep_only(names);
            for name in names {
                keepers.entry(name.clone()).or_insert_with(|| {
                    let keeper = Keeper::new(name, Arc::clone(&together));
                    tokio::spawn(keeper.keep()).abort_handle()
                });
            }
            if woken.changed().await.is_err() {
                break;
            }
        }
    });
}

fn ports(addresses: &[SocketAddr]) -> Vec<u16> {
    addresses.iter().map(SocketAddr::port).collect()
}

/// Where certificates come from and are kept, for the first lines of the log.
pub(crate) fn summary(config: &AcmeConfig) -> String {
    format!(
        "{} by {}, kept in {}",
        config.names.join(", "),
        config.directory,
        config.storage.display()
    )
}
