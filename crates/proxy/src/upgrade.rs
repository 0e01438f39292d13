//! Another process in the place of this one: the same command line, with the program and the
//! configuration as they are by then.
//!
//! The new one is given the listening sockets. This one serves until the other has said that it does; if
//! it never says so, nothing has changed.

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

use crate::handle::Handle;
use crate::handover::{Line, TICKETS, VARIABLE};
use crate::predecessor::follow_successor;
use crate::tls::Tickets;

/// How long writing to the tiers may take before the disk is handed over: what is not written then is
/// lost to the new process, and nothing else.
const SETTLE: Duration = Duration::from_secs(5);

/// A process that has failed has so many times so long to say why, and to end.
const LAST_LOOKS: u32 = 40;
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Why this process goes on.
#[derive(Debug, thiserror::Error)]
pub enum NotUpgraded {
    /// The server is about to end.
    #[error("the server is about to end")]
    Draining,
    /// A container ends with its first process.
    #[error("this is process 1: what it runs in would end with it")]
    First,
    /// The other one could not be started.
    #[error("{0}")]
    NotStarted(#[from] io::Error),
    /// It has ended, or said why it does not serve.
    #[error("the new process does not serve: {0}")]
    Failed(String),
    /// Too many others wait for the same.
    #[error("others wait for the same")]
    Busy,
}

/// What is run: what this process was started as.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// To be called at the start, while the file is still the one that runs.
    pub(crate) fn this() -> io::Result<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            arguments: std::env::args_os().skip(1).collect(),
        })
    }
}

/// The process that takes this one's place. Until it does it ends with this.
struct Successor {
    process: Child,
    line: Arc<Line>,
    serves: bool,
}

/// What it has said last.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    WantsDisk,
    Ready,
}

/// Starts another process in the place of this one, and gives its id as soon as it serves. This one is to
/// stop then.
pub(crate) async fn upgrade(program: &Program, handle: &Handle) -> Result<u32, NotUpgraded> {
    let life = handle.life();
    if handle.is_leaving() {
        return Err(NotUpgraded::Draining);
    }
    if std::process::id() == 1 {
        return Err(NotUpgraded::First);
    }
    let (program, sockets) = (program.clone(), life.sockets()?);
    let tickets = handle.config().tls.is_on();
    let tickets = tickets.then(|| Tickets::of_this_process().handover());
    let tickets = tickets.flatten();
    let started = blocking(move || Successor::start(&program, sockets, tickets)).await;
    let (mut successor, mut word) = started?;
    if word == Word::WantsDisk {
        // A purge that came now would be known to neither.
        life.begin_handover();
        let went_on = match give_up_disk(handle).await {
            Ok(()) => blocking(move || successor.go_on()).await,
            Err(error) => blocking(move || Err(successor.ended(&format!("disk: {error}")))).await,
        };
        if went_on.is_err() {
            life.end_handover();
            take_back_disk(handle).await;
        }
        (successor, word) = went_on?;
    }
    debug_assert_eq!(word, Word::Ready);
    // From now on it accepts, and a purge that came here would miss what it stores.
    life.begin_handover();
    if let Err(error) = successor.line.say("go", None) {
        life.end_handover();
        take_back_disk(handle).await;
        let why = error.to_string();
        return blocking(move || Err(successor.ended(&why))).await;
    }
    successor.serves = true;
    life.hand_over(Arc::clone(&successor.line));
    // Without it a purge there is answered when this process has ended.
    let _ = follow(Arc::clone(&successor.line), handle);
    Ok(successor.process.id())
}

/// Has purges count here that come to the new process while this one ends.
fn follow(line: Arc<Line>, handle: &Handle) -> io::Result<()> {
    let engine = handle.engine();
    let purge = move |rule: Rule| engine.cache.apply_purge(&rule);
    let follow = move || follow_successor(&line, purge);
    let thread = thread::Builder::new().name("after".to_owned());
    thread.spawn(follow).map(drop)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotUpgraded> + Send + 'static,
) -> Result<T, NotUpgraded> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|ended| Err(NotUpgraded::Failed(ended.to_string())))
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
        let line =
            format!("disk: it cannot be taken back ({error}), and is done without until a restart");
        let notices = &handle.in_force().shared.notices;
        notices.say(crate::notices::Kind::TierDown, "disk", line);
    }
}

impl Successor {
    fn start(
        program: &Program,
        sockets: Vec<(String, OwnedFd)>,
        tickets: Option<String>,
    ) -> Result<(Self, Word), NotUpgraded> {
        let (line, theirs) = Line::pair()?;
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

    fn go_on(self) -> Result<(Self, Word), NotUpgraded> {
        let mut successor = self;
        if let Err(error) = successor.line.say("go", None) {
            return Err(successor.ended(&error.to_string()));
        }
        match successor.hear()? {
            (successor, Word::Ready) => Ok((successor, Word::Ready)),
            (mut successor, Word::WantsDisk) => Err(successor.ended("it asked for the disk twice")),
        }
    }

    fn hear(mut self) -> Result<(Self, Word), NotUpgraded> {
        let why = match self.line.hear() {
            Ok(Some((word, _))) => match (word.as_str(), word.strip_prefix("failed ")) {
                ("disk", _) => return Ok((self, Word::WantsDisk)),
                ("ready", _) => return Ok((self, Word::Ready)),
                (_, Some(why)) => why.to_owned(),
                (other, None) => format!("it said `{other}`, which means nothing here"),
            },
            Ok(None) => "it has ended; what it said stands on standard error".to_owned(),
            Err(error) => format!("it has said nothing: {error}"),
        };
        Err(self.ended(&why))
    }

    fn ended(&mut self, why: &str) -> NotUpgraded {
        self.end();
        NotUpgraded::Failed(why.to_owned())
    }

    /// One that ends by itself has said why; another is ended.
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
