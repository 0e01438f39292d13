//! Reload of the configuration and upgrade of the process, at run time.
//!
//! Requested by a signal, through [`Handle`], or by a changed file. A reload is applied as a whole or not at
//! all.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::commands::{ReloadError, ReloadOutcome, ServerCommand, UpgradeError};
use super::handle::Handle;
use super::upgrade::{Program, upgrade};
use crate::config::{Config, Source, SourceError};
use crate::observe::Kind;
use crate::shared::Shared;

/// Polling interval of the watched files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of mistakes in the log; `microcache check` lists all.
const MAX_REPORTED: usize = 8;

/// Stage in the life of a server, for its service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStage {
    /// It serves, after the start or a reload.
    Ready,
    /// It reloads its configuration.
    Reloading,
    /// The process with this id has taken over.
    Replaced(u32),
    /// It drains.
    Stopping,
}

/// Callback for stages.
pub(crate) type OnStage = Arc<dyn Fn(ServerStage) + Send + Sync>;

/// Executes reloads and upgrades.
pub(crate) struct Reloader {
    source: Source,
    program: Program,
    on_stage: Option<OnStage>,
    hang_up: Signal,
    user_2: Signal,
    commands: mpsc::Receiver<ServerCommand>,
    /// The files as they were read: a change right after the start is noticed as well.
    watched: WatchedFiles,
}

impl Reloader {
    pub(crate) fn new(
        source: Source,
        config: &Config,
        on_stage: Option<OnStage>,
        commands: mpsc::Receiver<ServerCommand>,
    ) -> io::Result<Self> {
        Ok(Self {
            watched: WatchedFiles::of(files(&source, config)),
            source,
            program: Program::this()?,
            on_stage,
            hang_up: signal(SignalKind::hangup())?,
            user_2: signal(SignalKind::user_defined2())?,
            commands,
        })
    }

    /// Executes commands for as long as it is polled.
    pub(crate) async fn keep_reloading(mut self, handle: &Handle) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = self.hang_up.recv() => {
                    self.watched = WatchedFiles::of(self.files(handle));
                    // The sender of a signal finds the result in the log.
                    let _ = self.reload(handle, "SIGHUP").await;
                    self.watched.watch(files(&self.source, &handle.config()));
                }
                _ = self.user_2.recv() => {
                    let _ = self.upgrade(handle).await;
                }
                // A caller that has gone finds the result in the log.
                Some(command) = self.commands.recv() => match command {
                    ServerCommand::Reload(reply) => {
                        self.watched = WatchedFiles::of(self.files(handle));
                        let _ = reply.send(self.reload(handle, "requested").await);
                        self.watched.watch(files(&self.source, &handle.config()));
                    }
                    ServerCommand::Upgrade(reply) => {
                        let _ = reply.send(self.upgrade(handle).await);
                    }
                },
                _ = ticks.tick() => {
                    let now = self.files(handle);
                    if self.watched.have_changed(now) && handle.config().reload_on_change {
                        let _ = self.reload(handle, "a file has changed").await;
                        self.watched.watch(files(&self.source, &handle.config()));
                    }
                }
            }
        }
    }

    fn files(&self, handle: &Handle) -> Vec<PathBuf> {
        files(&self.source, &handle.config())
    }

    async fn upgrade(&self, handle: &Handle) -> Result<u32, UpgradeError> {
        let upgraded = upgrade(&self.program, handle).await;
        let notices = &handle.active().notices;
        match &upgraded {
            Ok(process) => {
                self.tell(ServerStage::Replaced(*process));
                let line = format!("process {process} has taken over");
                notices.say(Kind::Upgraded, "upgrade", line);
            }
            Err(error) => {
                let line = format!("not upgraded, this process continues: {error}");
                notices.say(Kind::NotUpgraded, "upgrade", line);
            }
        }
        upgraded
    }

    fn tell(&self, stage: ServerStage) {
        if let Some(tell) = &self.on_stage {
            tell(stage);
        }
    }

    async fn reload(&self, handle: &Handle, why: &str) -> Result<ReloadOutcome, ReloadError> {
        self.tell(ServerStage::Reloading);
        let reloaded = self.try_reload(handle).await;
        if !handle.is_leaving() {
            self.tell(ServerStage::Ready);
        }
        let notices = &handle.active().notices;
        match &reloaded {
            Ok(done) => {
                let changed = if done.changed.is_empty() {
                    "nothing changed".to_owned()
                } else {
                    format!("changed: {}", done.changed.join(", "))
                };
                let line = format!("configuration reloaded ({why}); {changed}");
                notices.say(Kind::Reloaded, "configuration", line);
            }
            Err(ReloadError::NoFile) => {
                let line = "SIGHUP is ignored: the server was started without a configuration file";
                notices.say(Kind::Server, "SIGHUP", line);
            }
            Err(refused) => {
                let line = format!(
                    "configuration not reloaded ({why}), the current one stays in force: {}",
                    InOneLine(refused)
                );
                notices.say(Kind::NotReloaded, "configuration", line);
            }
        }
        reloaded
    }

    async fn try_reload(&self, handle: &Handle) -> Result<ReloadOutcome, ReloadError> {
        if handle.is_leaving() {
            return Err(ReloadError::Draining);
        }
        // Without a file, certificates can still be reloaded.
        if self.source.file.is_none() && !handle.config().tls.is_on() {
            return Err(ReloadError::NoFile);
        }
        let source = self.source.clone();
        // The file may be on a slow file system.
        let config = match spawn_blocking(move || source.read()).await {
            Ok(read) => read?,
            Err(ended) => {
                let error = io::Error::other(ended);
                let file = self.source.file.clone().unwrap_or_default();
                let file = file.display().to_string();
                return Err(SourceError::Unreadable { file, error }.into());
            }
        };
        let active = handle.active();
        if let Some(report) = active.config.needs_restart_for(&config) {
            return Err(ReloadError::NeedsRestart(report));
        }
        change_logins(&active, &config).await?;
        let warnings = config.warnings.clone();
        let mut changed = active.config.settings.changed_by(&config.settings);
        let is_renewed = active.config.tls.read != config.tls.read;
        if is_renewed && changed.iter().all(|option| option != "tls") {
            changed.push("tls".to_owned());
        }
        // Also if no option changed: the lines of the options may have.
        let new = Arc::new(active.renewed(config));
        let generation = new.generation();
        new.activate();
        Ok(ReloadOutcome {
            generation,
            changed,
            warnings,
        })
    }
}

/// Uses the new users and passwords of Redis, all or none of them.
async fn change_logins(active: &Shared, config: &Config) -> Result<(), ReloadError> {
    let (cache, old) = (&active.engine.cache, &active.config);
    let (before, after) = (&old.tiers.redis, &config.tiers.redis);
    if before != after {
        let changed = cache.change_tier_login(after).await;
        changed.map_err(|error| ReloadError::TierLogin(format!("redis: {error}")))?;
    }
    let Some(fleet) = config
        .push
        .fleet()
        .filter(|it| old.push.fleet() != Some(it))
    else {
        return Ok(());
    };
    let changed = match (&active.push, &active.mercure) {
        (Some(push), Some(hub)) => {
            // They have one server, so that one accepts the password if the other does.
            let changed = push.change_login(&fleet.urls).await;
            changed.and(hub.change_login(&fleet.urls).await)
        }
        (Some(push), None) => push.change_login(&fleet.urls).await,
        (None, Some(hub)) => hub.change_login(&fleet.urls).await,
        (None, None) => Ok(()),
    };
    if let Err(error) = changed {
        if before != after {
            let _ = cache.change_tier_login(before).await;
        }
        return Err(ReloadError::TierLogin(format!("push_redis: {error}")));
    }
    Ok(())
}

/// Formats the reason in one line, for the log.
struct InOneLine<'a>(&'a ReloadError);

impl fmt::Display for InOneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(report) = self.0.report() else {
            return self.0.fmt(f);
        };
        for (i, mistake) in report.mistakes().take(MAX_REPORTED).enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{mistake}")?;
        }
        match report.count().saturating_sub(MAX_REPORTED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more, see `microcache check`"),
        }
    }
}

/// Files polled for changes. A change is reported once all files were the same in two polls, because several files
/// are replaced one after the other.
struct WatchedFiles {
    known: Vec<WatchedFile>,
    latest: Vec<WatchedFile>,
}

/// A file with its metadata, if it exists.
type WatchedFile = (PathBuf, Option<FileStamp>);

/// Metadata that changes with the content of a file: device, inode, size, modification time.
type FileStamp = (u64, u64, u64, i64, i64);

impl WatchedFiles {
    /// Watches these files; their present state is known.
    fn of(files: Vec<PathBuf>) -> Self {
        let stamped = files.into_iter().map(|file| {
            let stamp = stamp(&file);
            (file, stamp)
        });
        let known: Vec<_> = stamped.collect();
        Self {
            latest: known.clone(),
            known,
        }
    }

    /// Replaces the list of files. Added ones are known in their present state.
    fn watch(&mut self, files: Vec<PathBuf>) {
        let known = std::mem::take(&mut self.known);
        *self = Self::of(files);
        for watched in &mut self.known {
            if let Some(before) = known.iter().find(|before| before.0 == watched.0) {
                watched.1 = before.1;
            }
        }
        self.latest.clone_from(&self.known);
    }

    /// Returns whether the files, or the list of them, differ from the known ones, and takes them as known.
    fn have_changed(&mut self, files: Vec<PathBuf>) -> bool {
        let now = files.into_iter().map(|file| {
            // A missing file is about to be replaced.
            let known = || self.known.iter().find(|(known, _)| *known == file)?.1;
            let stamp = stamp(&file).or_else(known);
            (file, stamp)
        });
        let now: Vec<_> = now.collect();
        let is_settled = now == self.latest;
        let have_changed = is_settled && now != self.known;
        if have_changed {
            self.known.clone_from(&now);
        }
        self.latest = now;
        have_changed
    }
}

fn stamp(file: &Path) -> Option<FileStamp> {
    let file = std::fs::metadata(file).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.size(),
        file.mtime(),
        file.mtime_nsec(),
    ))
}

/// Returns the configuration file, those that it includes, and the certificate files that they name.
fn files(source: &Source, config: &Config) -> Vec<PathBuf> {
    let named = config.tls.files().map(Path::to_owned);
    let all = source.file.iter().cloned();
    all.chain(config.included_files()).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use microcache_testkit::Folder;

    use super::*;

    #[test]
    fn files_have_changed_when_all_are_unchanged_for_two_checks() {
        let directory = Folder::new();
        let [path, other, key] =
            ["a.toml", "b.toml", "key"].map(|name| directory.path().join(name));
        fs::write(&path, "1").unwrap();
        fs::write(&key, "1").unwrap();
        let both = || vec![path.clone(), key.clone()];
        let mut files = WatchedFiles::of(both());
        let mut looks = |listed: &dyn Fn() -> Vec<PathBuf>, expected: [bool; 3]| {
            assert_eq!([(); 3].map(|()| files.have_changed(listed())), expected);
        };
        looks(&both, [false; 3]);
        fs::write(&path, "12").unwrap();
        looks(&both, [false, true, false]);
        // Editors put another file in its place, and there may be none for a moment.
        fs::rename(&path, &other).unwrap();
        looks(&both, [false; 3]);
        fs::write(&path, "34").unwrap();
        looks(&both, [false, true, false]);
        // A file is added to a directory that is included, and removed from it.
        let all = || vec![path.clone(), key.clone(), other.clone()];
        looks(&all, [false, true, false]);
        looks(&both, [false, true, false]);
        // Two files are replaced one after the other.
        fs::write(&path, "567").unwrap();
        assert!(!files.have_changed(both()));
        fs::write(&key, "567").unwrap();
        let looks = [(); 3].map(|()| files.have_changed(both()));
        assert_eq!(looks, [false, true, false]);
        // The new configuration names another file.
        fs::write(&key, "8").unwrap();
        let list = || vec![key.clone(), other.clone()];
        files.watch(list());
        let looks = [(); 3].map(|()| files.have_changed(list()));
        assert_eq!(looks, [false, true, false]);
        fs::write(&key, "90").unwrap();
        files = WatchedFiles::of(list());
        assert_eq!([(); 3].map(|()| files.have_changed(list())), [false; 3]);
    }
}
