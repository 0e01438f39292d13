//! A body that is written into a draft by turns, while it arrives.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::DiskFailure;
use super::crew::Crew;
use crate::tier::TierError;

/// Pieces are gathered until there are so many bytes of them.
const GATHER: usize = 512 * 1024;

/// What has come of it, written or not.
pub(crate) struct ByTurns<D: Send + 'static> {
    pub(crate) writing: Arc<Crew>,
    stage: Stage<D>,
    pieces: Vec<Bytes>,
    gathered: usize,
    total: u64,
    largest: u64,
    _place: OwnedSemaphorePermit,
}

enum Stage<D> {
    Empty,
    Begun(Box<D>),
    /// With whoever writes to it now, or given up.
    Away,
}

impl<D: Send + 'static> ByTurns<D> {
    pub(crate) const fn new(writing: Arc<Crew>, largest: u64, place: OwnedSemaphorePermit) -> Self {
        Self {
            writing,
            stage: Stage::Empty,
            pieces: Vec::new(),
            gathered: 0,
            total: 0,
            largest,
            _place: place,
        }
    }

    /// Takes what has come. Once enough has, `write` brings the draft up to date.
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
            self.stage = Stage::Begun(self.writing.run(flush).await?);
        }
        Ok(())
    }

    /// What has to be done to bring the draft up to date. It is begun with the first pieces.
    pub(crate) fn flush(
        &mut self,
        write: impl FnOnce(Option<Box<D>>, &[Bytes]) -> Result<Box<D>, DiskFailure> + Send + 'static,
    ) -> impl FnOnce() -> Result<Box<D>, DiskFailure> + Send + 'static {
        let stage = mem::replace(&mut self.stage, Stage::Away);
        let pieces = mem::take(&mut self.pieces);
        self.gathered = 0;
        move || match stage {
            Stage::Empty => write(None, &pieces),
            Stage::Begun(draft) => write(Some(draft), &pieces),
            Stage::Away => Err(DiskFailure::GivenUp),
        }
    }
}

impl<D: Send + 'static> Drop for ByTurns<D> {
    fn drop(&mut self) {
        if let Stage::Begun(draft) = mem::replace(&mut self.stage, Stage::Away) {
            self.writing.dispose(draft);
        }
    }
}
