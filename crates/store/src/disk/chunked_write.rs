//! Chunked writes of a body that is received piece by piece.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::error::DiskFailure;
use super::io_pool::IoPool;
use crate::tier::TierError;

/// Size at which received pieces are written, in bytes.
const GATHER: usize = 512 * 1024;

/// Body that is partly buffered and partly written to a draft.
pub(crate) struct ChunkedWriter<D: Send + 'static> {
    pub(crate) writing: Arc<IoPool>,
    stage: WriteStage<D>,
    pieces: Vec<Bytes>,
    gathered: usize,
    total: u64,
    largest: u64,
    _place: OwnedSemaphorePermit,
}

enum WriteStage<D> {
    Empty,
    Begun(Box<D>),
    /// Moved to a write in progress, or abandoned.
    Away,
}

impl<D: Send + 'static> ChunkedWriter<D> {
    pub(crate) const fn new(
        writing: Arc<IoPool>,
        largest: u64,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            writing,
            stage: WriteStage::Empty,
            pieces: Vec::new(),
            gathered: 0,
            total: 0,
            largest,
            _place: place,
        }
    }

    /// Buffers a piece. Once enough are buffered, `write` appends them to the draft.
    pub(crate) async fn take(
        &mut self,
        chunk: Bytes,
        write: impl FnOnce(Option<Box<D>>, &[Bytes]) -> Result<Box<D>, DiskFailure> + Send + 'static,
    ) -> Result<(), TierError> {
        self.total += chunk.len() as u64;
        if self.total > self.largest {
            return Err(DiskFailure::TooLarge.into());
        }
        self.gathered += chunk.len();
        self.pieces.push(chunk);
        if self.gathered >= GATHER {
            let flush = self.flush(write);
            self.stage = WriteStage::Begun(self.writing.run(flush).await?);
        }
        Ok(())
    }

    /// Returns the job that appends the buffered pieces to the draft, creating it first if needed.
    pub(crate) fn flush(
        &mut self,
        write: impl FnOnce(Option<Box<D>>, &[Bytes]) -> Result<Box<D>, DiskFailure> + Send + 'static,
    ) -> impl FnOnce() -> Result<Box<D>, DiskFailure> + Send + 'static {
        let stage = mem::replace(&mut self.stage, WriteStage::Away);
        let pieces = mem::take(&mut self.pieces);
        self.gathered = 0;
        move || match stage {
            WriteStage::Empty => write(None, &pieces),
            WriteStage::Begun(draft) => write(Some(draft), &pieces),
            WriteStage::Away => Err(DiskFailure::GivenUp),
        }
    }
}

impl<D: Send + 'static> Drop for ChunkedWriter<D> {
    fn drop(&mut self) {
        if let WriteStage::Begun(draft) = mem::replace(&mut self.stage, WriteStage::Away) {
            self.writing.dispose(draft);
        }
    }
}
