//! A body that is too large for memory, on its way into a file.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::DiskFailure;
use super::crew::Crew;
use super::expiry;
use super::files::Files;
use super::removals::Moment;
use super::write::Draft;
use crate::content::Content;
use crate::tier::{BoxFuture, EntryId, Spool, TierError};

/// Pieces are gathered until there are so many bytes of them.
const GATHER: usize = 512 * 1024;

/// A draft that is written to by turns.
pub(super) struct DiskSpool {
    files: Arc<Files>,
    writing: Arc<Crew>,
    began: Moment,
    stage: Stage,
    pieces: Vec<Bytes>,
    gathered: usize,
    total: u64,
    _place: OwnedSemaphorePermit,
}

enum Stage {
    Empty,
    Begun(Box<Draft>),
    /// With whoever writes to it now, or given up.
    Away,
}

impl DiskSpool {
    pub(super) fn new(files: Arc<Files>, writing: Arc<Crew>, place: OwnedSemaphorePermit) -> Self {
        Self {
            began: files.now(),
            files,
            writing,
            stage: Stage::Empty,
            pieces: Vec::new(),
            gathered: 0,
            total: 0,
            _place: place,
        }
    }

    /// What has to be done to bring the draft up to date.
    fn flush(&mut self) -> impl FnOnce() -> Result<Box<Draft>, DiskFailure> + Send + 'static {
        let stage = std::mem::replace(&mut self.stage, Stage::Away);
        let pieces = std::mem::take(&mut self.pieces);
        self.gathered = 0;
        let files = Arc::clone(&self.files);
        move || {
            let mut draft = match stage {
                Stage::Empty => Box::new(Draft::begin_headless(&files)?),
                Stage::Begun(draft) => draft,
                Stage::Away => return Err(DiskFailure::GivenUp),
            };
            pieces.iter().try_for_each(|piece| draft.append(piece))?;
            Ok(draft)
        }
    }

    fn take(&mut self, chunk: Bytes) -> Result<(), DiskFailure> {
        self.total += chunk.len() as u64;
        if self.total > self.files.settings.max_object {
            return Err(DiskFailure::TooLarge);
        }
        self.gathered += chunk.len();
        self.pieces.push(chunk);
        Ok(())
    }
}

impl Spool for DiskSpool {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async {
            self.take(chunk)?;
            if self.gathered >= GATHER {
                let flush = self.flush();
                self.stage = Stage::Begun(self.writing.run(flush).await?);
            }
            Ok(())
        })
    }

    fn finish(
        mut self: Box<Self>,
        id: EntryId,
        head: Bytes,
        expires: std::time::Duration,
    ) -> BoxFuture<'static, Result<Content, TierError>> {
        Box::pin(async move {
            let began = self.began;
            let flush = self.flush();
            let job = move || flush()?.finish(id, &head, expiry::after(expires), began);
            self.writing.run(job).await.map(Content::File)
        })
    }
}

impl Drop for DiskSpool {
    fn drop(&mut self) {
        if let Stage::Begun(draft) = std::mem::replace(&mut self.stage, Stage::Away) {
            self.writing.dispose(draft);
        }
    }
}
