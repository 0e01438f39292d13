//! Where the response goes: to standard output as it arrives, or into a file, which has its name once it is complete.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use reqwest::Response;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::Ended;

/// Pieces that wait to be written. Whoever reads slowly has the server wait.
const WAITING: usize = 8;
/// So much of a file's name, in bytes, is in the name of its draft: that must not be too long for a name.
const NAME: usize = 200;

/// Where it goes. Dropped before it is finished, it leaves no file behind.
pub(super) struct Output {
    name: String,
    pieces: mpsc::Sender<Bytes>,
    written: oneshot::Receiver<io::Result<()>>,
    draft: Option<Draft>,
}

impl Output {
    pub(super) async fn open(path: Option<&Path>) -> Result<Self, Ended> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::to(io::stdout(), "standard output".to_owned(), None));
        };
        let (name, path) = (path.display().to_string(), path.to_owned());
        // A pipe may have no reader yet. Whoever waits for one can be interrupted.
        let opened = spawn_blocking(move || open(path)).await;
        let opened = opened.map_err(io::Error::other).flatten();
        let (file, draft) = opened.map_err(|error| unwritten(&name, &error))?;
        Ok(Self::to(file, name, draft))
    }

    pub(super) async fn write(&mut self, piece: Bytes) -> Result<(), Ended> {
        if self.pieces.send(piece).await.is_ok() {
            return Ok(());
        }
        Err(self.why().await)
    }

    /// Waits until all of it is written.
    pub(super) async fn finish(mut self) -> Result<(), Ended> {
        // Nothing more comes.
        self.pieces = mpsc::channel(1).0;
        match (&mut self.written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unwritten(&self.name, &error)),
            Err(_) => return Err(Ended::NoOutput(format!("{} was given up", self.name))),
        }
        let published = self.draft.take().map_or(Ok(()), Draft::publish);
        published.map_err(|error| unwritten(&self.name, &error))
    }

    fn to(to: impl Write + Send + 'static, name: String, draft: Option<Draft>) -> Self {
        let (pieces, waiting) = mpsc::channel(WAITING);
        let (done, written) = oneshot::channel();
        // A thread of its own: whoever reads may take his time.
        thread::spawn(move || {
            let _ = done.send(write_all(to, waiting));
        });
        Self {
            name,
            pieces,
            written,
            draft,
        }
    }

    /// Why nothing more is written.
    async fn why(&mut self) -> Ended {
        match (&mut self.written).await {
            Ok(Err(error)) => unwritten(&self.name, &error),
            _ => Ended::NoOutput(format!("{} was given up", self.name)),
        }
    }
}

fn write_all(mut to: impl Write, mut pieces: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(piece) = pieces.blocking_recv() {
        to.write_all(&piece)?;
        if pieces.is_empty() {
            to.flush()?;
        }
    }
    to.flush()
}

fn unwritten(name: &str, error: &io::Error) -> Ended {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ended::NobodyReads;
    }
    Ended::NoOutput(format!("cannot write to {name}: {error}"))
}

/// The file to write to. A link stays, and what it leads to is replaced. A device or a pipe is written to as it is.
fn open(path: PathBuf) -> io::Result<(File, Option<Draft>)> {
    // What the path leads to is looked up once, by the system: it does not follow the link that somebody else has put
    // into a folder of everybody's.
    let there = match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(there) => File::from(there),
        Err(Errno::NOENT) => return Draft::begin(path, None),
        Err(error) => return Err(error.into()),
    };
    let about = there.metadata()?;
    if !about.is_file() {
        return Ok((OpenOptions::new().write(true).open(path)?, None));
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
    Draft::begin(path, Some(&about))
}

/// A file beside the one that it will be.
struct Draft {
    path: PathBuf,
    becomes: PathBuf,
}

impl Draft {
    /// Whoever may read the file that it replaces may read it, and nobody else.
    fn begin(becomes: PathBuf, replaced: Option<&Metadata>) -> io::Result<(File, Option<Self>)> {
        let name = becomes.file_name().unwrap_or_default().as_bytes();
        // The number of a process comes again, and a draft of one that was killed may still be there.
        let unique = RandomState::new().build_hasher().finish();
        let ending = format!(".{unique:016x}.part");
        let name = [&name[..name.len().min(NAME)], ending.as_bytes()].concat();
        let path = becomes.with_file_name(OsStr::from_bytes(&name));
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        let draft = Self { path, becomes };
        if let Some(replaced) = replaced {
            let is_owned_alike = fchown(&file, Some(replaced.uid()), Some(replaced.gid())).is_ok();
            let kept = if is_owned_alike { 0o777 } else { 0o707 };
            file.set_permissions(Permissions::from_mode(replaced.mode() & kept))?;
        }
        Ok((file, Some(draft)))
    }

    fn publish(self) -> io::Result<()> {
        fs::rename(&self.path, &self.becomes)
    }
}

/// What was published is not there any more.
impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Status and header, as HTTP/1.1 writes them.
pub(super) fn head(response: &Response) -> Bytes {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or_default();
    let opening = format!("{:?} {} {reason}\r\n", response.version(), status.as_u16());
    let mut head = opening.into_bytes();
    for (name, value) in response.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}
