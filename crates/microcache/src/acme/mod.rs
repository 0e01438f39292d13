//! ACME certificates, obtained and renewed automatically (RFC 8555).
//!
//! A separate thread requests certificates, with one task per name, and puts them where handshakes find them
//! ([`IssuedCertificates`]). Requests never wait for it, and names do not wait for each other.

mod account;
mod authority;
mod failed;
mod name;
mod order;
mod renewal;
mod schedule;
mod storage;
mod stored;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::thread;

use microcache_proxy::config::{AcmeConfig, Config};
use microcache_proxy::{Handle, IssuedCertificates, Kind, Notices, ServerStage};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use name::{Keeper, SharedState};
use storage::Storage;
use stored::load;

/// The manager of ACME certificates.
#[derive(Clone)]
pub(crate) struct Acme {
    notices: Notices,
    handle: Arc<OnceLock<Handle>>,
    /// The number of reloads; `None` at the end.
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

    /// Loads the stored certificates, and starts for this server.
    pub(crate) fn begin(&self, handle: Handle) {
        let config = handle.config();
        let storage = Storage::of(&config.acme);
        for name in &config.acme.names {
            match load(&storage, name) {
                Ok(_) => {}
                Err(why) => {
                    let line = format!("{name}: {why}; a new one is requested");
                    self.notices.say(Kind::NoCertificate, name, line);
                }
            }
        }
        let _ = self.handle.set(handle);
    }

    /// The stage of the server.
    pub(crate) fn on_stage(&self, stage: ServerStage) {
        match stage {
            ServerStage::Ready => self.look(),
            ServerStage::Reloading => {}
            // The new process manages them from now on.
            ServerStage::Replaced(_) | ServerStage::Stopping => drop(self.wake.send_replace(None)),
        }
    }

    /// Applies the active configuration, and retries failed names.
    fn look(&self) {
        let Some(handle) = self.handle.get() else {
            return;
        };
        if handle.config().acme.is_on() && self.runs.set(()).is_ok() {
            let (handle, notices) = (handle.clone(), self.notices.clone());
            let woken = self.wake.subscribe();
            let run = move || run(&handle, &notices, woken);
            if let Err(error) = thread::Builder::new().name("acme".to_owned()).spawn(run) {
                let line = format!("no certificates are requested: {error}");
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

/// Manages all names until the end.
fn run(handle: &Handle, notices: &Notices, mut woken: watch::Receiver<Option<u64>>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let line = format!("no certificates are requested: {error}");
            return notices.say(Kind::NoCertificate, "", line);
        }
    };
    runtime.block_on(async {
        let together = Arc::new(SharedState::new(notices.clone()));
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
            IssuedCertificates::of_this_process().keep_only(names);
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

/// The line of the banner: names, authority and storage.
pub(crate) fn summary(config: &AcmeConfig) -> String {
    format!(
        "{} by {}, stored in {}",
        config.names.join(", "),
        config.directory,
        config.storage.display()
    )
}
