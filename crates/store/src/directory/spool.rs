//! A body that is too large for memory, on its way into a file while it arrives. Room is taken for it as it grows.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::claims::Claims;
use super::folder::Folder;
use super::record::{Growing, HEAD_ROOM};
use super::{Shared, publish};
use crate::content::Content;
use crate::disk::DiskFailure;
use crate::disk::crew::Crew;
use crate::tier::{BoxFuture, EntryId, Put, Spool, TierError, Token};

/// Pieces are gathered until there are so many bytes of them.
const GATHER: usize = 512 * 1024;

/// A draft that is written to by turns.
pub(super) struct DirectorySpool {
    shared: Arc<Shared>,
    writing: Arc<Crew>,
    /// Whose turn it is to bring this.
    claim: (Arc<Claims>, EntryId, Token),
    stage: Stage,
    pieces: Vec<Bytes>,
    gathered: usize,
    total: u64,
    _place: OwnedSemaphorePermit,
}

enum Stage {
    Empty,
    Begun(Box<Growing>),
    /// With whoever writes to it now, or given up.
    Away,
}

impl DirectorySpool {
    pub(super) const fn new(
        shared: Arc<Shared>,
        writing: Arc<Crew>,
        claim: (Arc<Claims>, EntryId, Token),
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            shared,
            writing,
            claim,
            stage: Stage::Empty,
            pieces: Vec::new(),
            gathered: 0,
            total: 0,
            _place: place,
        }
    }

    fn take(&mut self, chunk: Bytes) -> Result<(), DiskFailure> {
        self.total += chunk.len() as u64;
        if self.total > self.shared.settings.max_object {
            return Err(DiskFailure::TooLarge);
        }
        self.gathered += chunk.len();
        self.pieces.push(chunk);
        Ok(())
    }

    /// What has to be done to bring the draft up to date.
    fn flush(&mut self) -> impl FnOnce() -> Result<Box<Growing>, DiskFailure> + Send + 'static {
        let stage = mem::replace(&mut self.stage, Stage::Away);
        let pieces = mem::take(&mut self.pieces);
        let length = mem::take(&mut self.gathered) as u64;
        let (shared, id) = (Arc::clone(&self.shared), self.claim.1);
        move || {
            let home = shared.place.home()?;
            let take_room = |length| {
                let has_room = shared.room.take(&home, length)?;
                has_room.then_some(()).ok_or(DiskFailure::NoRoom)
            };
            take_room(length)?;
            let mut growing = match stage {
                Stage::Empty => {
                    take_room(HEAD_ROOM)?;
                    Box::new(Growing::begin(&Folder::create(&home, id)?)?)
                }
                Stage::Begun(growing) => growing,
                Stage::Away => return Err(DiskFailure::GivenUp),
            };
            pieces.iter().try_for_each(|piece| growing.append(piece))?;
            Ok(growing)
        }
    }
}

impl Spool for DirectorySpool {
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
        expires: Duration,
    ) -> BoxFuture<'static, Result<Content, TierError>> {
        Box::pin(async move {
            let (claims, claimed, token) = &self.claim;
            // What varies lies under an id of its own, and the claim ended when what it varies on was stored.
            let is_claimed = *claimed == id;
            let claim = is_claimed.then(|| claims.get(id, *token)).transpose();
            let claim = claim.map_err(|_| DiskFailure::Removed)?;
            let flush = self.flush();
            let shared = Arc::clone(&self.shared);
            let expires = shared.kept_until(expires);
            let job = move || {
                let (draft, body) = flush()?.complete(id, &head, expires)?;
                let folder = Folder::create(&*shared.place.home()?, id)?;
                match publish(draft, &folder.lock()?, id, claim.as_deref())? {
                    Put::Stored => Ok(body),
                    Put::Superseded | Put::Refused => Err(DiskFailure::Removed),
                }
            };
            let body = self.writing.run(job).await?;
            if is_claimed {
                let (claims, _, token) = &self.claim;
                claims.take(id, *token);
            }
            Ok(Content::File(Arc::new(body)))
        })
    }
}

impl Drop for DirectorySpool {
    fn drop(&mut self) {
        if let Stage::Begun(draft) = mem::replace(&mut self.stage, Stage::Away) {
            self.writing.dispose(draft);
        }
    }
}
