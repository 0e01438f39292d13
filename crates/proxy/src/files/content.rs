//! Content of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use microcache_engine::{Body, BodyError, Frame, Source};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read at a time; smaller files are read at once.
const PIECE: u64 = 128 * 1024;

/// Returns `length` bytes of a file from `first` on. Blocks on the disk.
pub(super) fn content(file: File, first: u64, length: u64) -> io::Result<Body> {
    if length == 0 {
        return Ok(Body::Empty);
    }
    if length <= PIECE {
        return Ok(Body::Full(read(&file, first, length)?));
    }
    Ok(Body::Stream(Box::new(PiecewiseReader {
        file: Arc::new(file),
        at: first,
        end: first.saturating_add(length),
        under_way: None,
    })))
}

fn read(file: &File, at: u64, length: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; length as usize];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// A file that is read piece by piece, on demand.
struct PiecewiseReader {
    file: Arc<File>,
    at: u64,
    end: u64,
    under_way: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Source for PiecewiseReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let length = PIECE.min(self.end - self.at);
        if length == 0 {
            return Poll::Ready(None);
        }
        let (file, at) = (&self.file, self.at);
        let under_way = self.under_way.get_or_insert_with(|| {
            let file = Arc::clone(file);
            spawn_blocking(move || read(&file, at, length))
        });
        let piece = ready!(Pin::new(under_way).poll(cx));
        self.under_way = None;
        self.at += length;
        // Truncated or unreadable: the client must detect that its content is incomplete.
        let piece = piece.map_err(io::Error::other).flatten();
        Poll::Ready(Some(
            piece.map(Frame::Data).map_err(|_| BodyError::Incomplete),
        ))
    }
}
