//! Upgrade: replaces the process by a new one with the same command line, and the present program and
//! configuration.
//!
//! The new process inherits the listening sockets. This one serves until the new one is ready; if that fails,
//! nothing changes.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use microcache_engine::cache::Rule;
use microcache_store::TierError;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::commands::UpgradeError;
use super::handle::Handle;
use crate::lifecycle::{HandoverChannel, MAINTENANCE, TICKETS, VARIABLE, follow_successor};
use crate::tls::Tickets;

/// Time limit for pending writes to the tiers before the disk is handed over. Later writes are lost to the
/// new process only.
const SETTLE: Duration = Duration::from_secs(5);

/// Polls for a failed successor's reason and exit.
const LAST_LOOKS: u32 = 40;
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Command line of this process, for its successor.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Reads the command line. To be called at the start, while the file is still that of this process.
    pub(crate) fn this() -> io::Result<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }
}

/// The new process, which is killed on drop until it has taken over.
struct Successor {
    process: Child,
    line: Arc<HandoverChannel>,
    serves: bool,
}

/// State of the successor after its latest message.
#[derive(Debug, PartialEq, Eq)]
enum SuccessorState {
    WantsDisk,
    Ready,
}

/// Starts the new process, and returns its id as soon as it serves. This process is to stop then.
pub(crate) async fn upgrade(program: &Program, handle: &Handle) -> Result<u32, UpgradeError> {
    let lifecycle = handle.lifecycle();
    if handle.is_leaving() {
        return Err(UpgradeError::Draining);
    }
    if std::process::id() == 1 {
        return Err(UpgradeError::First);
    }
    let (program, sockets) = (program.clone(), lifecycle.sockets()?);
    let tickets = handle.config().tls.is_on();
    let tickets = tickets.then(|| Tickets::of_this_process().handover());
    let tickets = tickets.flatten();
    let started = blocking(move || Successor::start(&program, sockets, tickets)).await;
    let (mut successor, mut word) = started?;
    if word == SuccessorState::WantsDisk {
        // A purge between the two would be known to neither process.
        lifecycle.begin_handover();
        let went_on = match give_up_disk(handle).await {
            Ok(()) => blocking(move || successor.go_on()).await,
            Err(error) => blocking(move || Err(successor.ended(&format!("disk: {error}")))).await,
        };
        if went_on.is_err() {
            lifecycle.end_handover();
            take_back_disk(handle).await;
        }
        (successor, word) = went_on?;
    }
    debug_assert_eq!(word, SuccessorState::Ready);
    // The new process accepts from now on, and would miss a purge here.
    lifecycle.begin_handover();
    let mode = lifecycle.maintenance.handover();
    let mode = mode.map(|mode| format!("{MAINTENANCE}{mode}"));
    let mut words = mode.iter().map(String::as_str).chain(["go"]);
    if let Err(error) = words.try_for_each(|word| successor.line.say(word, None)) {
        lifecycle.end_handover();
        take_back_disk(handle).await;
        let why = error.to_string();
        return blocking(move || Err(successor.ended(&why))).await;
    }
    successor.serves = true;
    lifecycle.hand_over(Arc::clone(&successor.line));
    // Without the forwarding, a purge there completes when this process has ended.
    let _ = follow(Arc::clone(&successor.line), handle);
    Ok(successor.process.id())
}

/// Applies purges that the new process forwards while this one drains.
fn follow(line: Arc<HandoverChannel>, handle: &Handle) -> io::Result<()> {
    let engine = handle.engine();
    let purge = move |rule: Rule| engine.cache.apply_purge(&rule);
    let follow = move || follow_successor(&line, purge);
    let thread = thread::Builder::new().name("after".to_owned());
    thread.spawn(follow).map(drop)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, UpgradeError> + Send + 'static,
) -> Result<T, UpgradeError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|ended| Err(UpgradeError::Failed(ended.to_string())))
}

async fn give_up_disk(handle: &Handle) -> Result<(), TierError> {
    let engine = handle.engine();
    let _ = timeout(SETTLE, engine.cache.settle()).await;
    if let Some(push) = handle.push() {
        push.hand_over().await;
    }
    if let Some(hub) = handle.mercure() {
        hub.hand_over().await;
    }
    engine.cache.give_up_local().await
}

async fn take_back_disk(handle: &Handle) {
    if let Some(push) = handle.push() {
        push.take_back().await;
    }
    if let Some(hub) = handle.mercure() {
        hub.take_back().await;
    }
    if let Err(error) = handle.engine().cache.take_back_local() {
        let line = format!("disk: cannot be reopened ({error}), unused until a restart");
        let notices = &handle.active().notices;
        notices.say(crate::observe::Kind::TierDown, "disk", line);
    }
}

impl Successor {
    fn start(
        program: &Program,
        sockets: Vec<(String, OwnedFd)>,
        tickets: Option<String>,
    ) -> Result<(Self, SuccessorState), UpgradeError> {
        let (line, theirs) = HandoverChannel::pair()?;
        let process = Command::new(&program.path)
            .args(&program.arguments)
            .env(VARIABLE, "1")
            .stdin(Stdio::from(theirs))
            .spawn()?;
        let mut successor = Self {
            process,
            line: Arc::new(line),
            serves: false,
        };
        for (label, socket) in &sockets {
            let what = format!("socket {label}");
            if let Err(error) = successor.line.say(&what, Some(socket.as_fd())) {
                return Err(successor.ended(&error.to_string()));
            }
        }
        drop(sockets);
        let tickets = tickets.map(|keys| format!("{TICKETS}{keys}"));
        for word in tickets.iter().map(String::as_str).chain(["all"]) {
            if let Err(error) = successor.line.say(word, None) {
                return Err(successor.ended(&error.to_string()));
            }
        }
        successor.hear()
    }

    fn go_on(self) -> Result<(Self, SuccessorState), UpgradeError> {
        let mut successor = self;
        if let Err(error) = successor.line.say("go", None) {
            return Err(successor.ended(&error.to_string()));
        }
        match successor.hear()? {
            (successor, SuccessorState::Ready) => Ok((successor, SuccessorState::Ready)),
            (mut successor, SuccessorState::WantsDisk) => {
                Err(successor.ended("it requested the disk twice"))
            }
        }
    }

    fn hear(mut self) -> Result<(Self, SuccessorState), UpgradeError> {
        let why = match self.line.hear() {
            Ok(Some((word, _))) => match (word.as_str(), word.strip_prefix("failed ")) {
                ("disk", _) => return Ok((self, SuccessorState::WantsDisk)),
                ("ready", _) => return Ok((self, SuccessorState::Ready)),
                (_, Some(why)) => why.to_owned(),
                (other, None) => format!("it sent the unknown message `{other}`"),
            },
            Ok(None) => "it has exited; see its messages on standard error".to_owned(),
            Err(error) => format!("it sent no message: {error}"),
        };
        Err(self.ended(&why))
    }

    fn ended(&mut self, why: &str) -> UpgradeError {
        self.end();
        UpgradeError::Failed(why.to_owned())
    }

    /// Waits for the process to end by itself, and kills it otherwise.
    fn end(&mut self) {
        for _ in 0..LAST_LOOKS {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(LAST_LOOK);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.serves {
            self.end();
        }
    }
}
