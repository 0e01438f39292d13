//! Output of the response: to standard output as it arrives, or into a file that gets its name once it is
//! complete.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Stdout, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use reqwest::Response;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use super::draft::Draft;
use super::failure::FetchFailure;

/// Pieces queued for writing; a slow reader causes back-pressure on the server.
const WAITING: usize = 8;

/// Names of standard output. Opening them by name would replace the file that it is redirected to.
const PRINTED: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// An output. Dropped before it is finished, it leaves no file behind.
pub(super) struct Output {
    name: String,
    pieces: mpsc::Sender<Bytes>,
    written: oneshot::Receiver<io::Result<()>>,
    draft: Option<Draft>,
    has_begun: bool,
}

/// Returns true for names of standard output.
pub(super) fn is_printed(path: &Path) -> bool {
    PRINTED.iter().any(|name| path == Path::new(name))
}

impl Output {
    pub(super) async fn open(path: Option<&Path>) -> Result<Self, FetchFailure> {
        let Some(path) = path.filter(|path| !is_printed(path)) else {
            let printed = Destination::Printed(io::stdout());
            return Ok(Self::to(printed, "standard output".to_owned(), None));
        };
        let (name, path) = (path.display().to_string(), path.to_owned());
        // Opening a pipe waits for its reader, and must be interruptible.
        let opened = spawn_blocking(move || open(path)).await;
        let opened = opened.map_err(io::Error::other).flatten();
        let (sink, draft) = opened.map_err(|error| unwritten(&name, &error))?;
        Ok(Self::to(sink, name, draft))
    }

    /// Returns true if incomplete output can be undone: not for a terminal or a pipe, whose reader also sees
    /// it closed.
    pub(super) const fn can_be_taken_back(&self) -> bool {
        self.draft.is_some() || !self.has_begun
    }

    pub(super) async fn write(&mut self, piece: Bytes) -> Result<(), FetchFailure> {
        self.has_begun = true;
        if self.pieces.send(piece).await.is_ok() {
            return Ok(());
        }
        Err(self.why().await)
    }

    /// Waits until everything is written.
    pub(super) async fn finish(mut self) -> Result<(), FetchFailure> {
        // Closes the queue.
        self.pieces = mpsc::channel(1).0;
        match (&mut self.written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unwritten(&self.name, &error)),
            Err(_) => {
                return Err(FetchFailure::NoOutput(format!(
                    "{} was given up",
                    self.name
                )));
            }
        }
        let published = self.draft.take().map_or(Ok(()), Draft::publish);
        published.map_err(|error| unwritten(&self.name, &error))
    }

    fn to(sink: Destination, name: String, draft: Option<Draft>) -> Self {
        let has_begun = matches!(sink, Destination::Open(_));
        let (pieces, waiting) = mpsc::channel(WAITING);
        let (done, written) = oneshot::channel();
        // A thread of its own, because the reader may be slow.
        thread::spawn(move || {
            let _ = done.send(write_all(sink, waiting));
        });
        Self {
            name,
            pieces,
            written,
            draft,
            has_begun,
        }
    }

    /// Reason for which writing stopped.
    async fn why(&mut self) -> FetchFailure {
        match (&mut self.written).await {
            Ok(Err(error)) => unwritten(&self.name, &error),
            _ => FetchFailure::NoOutput(format!("{} was given up", self.name)),
        }
    }
}

/// Destination of the output.
enum Destination {
    Printed(Stdout),
    /// A pipe or a device.
    Open(File),
    /// A temporary file, renamed when it is complete.
    Draft(File),
}

impl Destination {
    fn write(&mut self, piece: &[u8], is_last_for_now: bool) -> io::Result<()> {
        match self {
            Self::Printed(printed) => {
                printed.write_all(piece)?;
                if is_last_for_now {
                    printed.flush()?;
                }
                Ok(())
            }
            Self::Open(file) | Self::Draft(file) => file.write_all(piece),
        }
    }

    /// Ends the output. A file is synced before it replaces another one, or a power failure could lose both.
    /// Where syncing is not supported, it is skipped.
    fn end(self) -> io::Result<()> {
        match self {
            Self::Printed(mut printed) => printed.flush(),
            Self::Open(_) => Ok(()),
            Self::Draft(file) => match file.sync_all() {
                Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            },
        }
    }
}

fn write_all(mut sink: Destination, mut pieces: mpsc::Receiver<Bytes>) -> io::Result<()> {
    while let Some(piece) = pieces.blocking_recv() {
        sink.write(&piece, pieces.is_empty())?;
    }
    sink.end()
}

fn unwritten(name: &str, error: &io::Error) -> FetchFailure {
    if error.kind() == ErrorKind::BrokenPipe {
        return FetchFailure::OutputClosed;
    }
    FetchFailure::NoOutput(format!("cannot write to {name}: {error}"))
}

/// Opens the output. A symbolic link is kept, and its target replaced. A device or a pipe is written to
/// directly.
fn open(path: PathBuf) -> io::Result<(Destination, Option<Draft>)> {
    // The path is resolved once, by the system, which does not follow links of other users in a shared
    // directory.
    let there = match rustix::fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(there) => File::from(there),
        Err(Errno::NOENT) => return begin(path, None),
        Err(error) => return Err(error.into()),
    };
    let about = there.metadata()?;
    if !about.is_file() {
        let device = OpenOptions::new().write(true).open(path)?;
        return Ok((Destination::Open(device), None));
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", there.as_raw_fd()))?;
    begin(path, Some(&about))
}

fn begin(path: PathBuf, replaced: Option<&Metadata>) -> io::Result<(Destination, Option<Draft>)> {
    let (file, draft) = Draft::begin(path, replaced)?;
    Ok((Destination::Draft(file), Some(draft)))
}

/// Formats the head of the response as HTTP/1.1.
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
