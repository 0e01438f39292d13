//! Where the response goes: to standard output as it arrives, or into a file, which has its name once it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread;

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::{mpsc, oneshot};

use super::Ended;

/// Pieces that wait to be written. Whoever reads slowly has the server wait.
const WAITING: usize = 8;

/// Where it goes. Dropped before it is finished, it leaves no file behind.
pub(super) struct Output {
    name: String,
    pieces: mpsc::Sender<Bytes>,
    written: oneshot::Receiver<io::Result<()>>,
    draft: Option<Draft>,
}

impl Output {
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Ended> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Ok(Self::to(io::stdout(), "standard output".to_owned(), None));
        };
        let name = path.display().to_string();
        let unopened = |error| unwritten(&name, &error);
        // A link stays, and what it leads to is replaced. A device or a pipe is written to as it is.
        let (file, draft) = match fs::metadata(path) {
            Ok(about) if !about.is_file() => {
                let file = OpenOptions::new().write(true).open(path);
                (file.map_err(unopened)?, None)
            }
            _ => {
                let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
                let (file, draft) = Draft::begin(path).map_err(unopened)?;
                (file, Some(draft))
            }
        };
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

/// A file beside the one that it will be.
struct Draft {
    path: PathBuf,
    becomes: PathBuf,
}

impl Draft {
    fn begin(becomes: PathBuf) -> io::Result<(File, Self)> {
        let mut name = becomes.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = becomes.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok((file, Self { path, becomes }))
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
