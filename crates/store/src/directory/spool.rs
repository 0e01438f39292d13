//! A body that is too large for memory, on its way into a file while it arrives. Room is taken for it as it grows.

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
use crate::disk::by_turns::ByTurns;
use crate::disk::crew::Crew;
use crate::tier::{BoxFuture, EntryId, Put, Spool, TierError, Token};

pub(super) struct DirectorySpool {
    shared: Arc<Shared>,
    /// Whose turn it is to bring this.
    claim: (Arc<Claims>, EntryId, Token),
    body: ByTurns<Growing>,
}

impl DirectorySpool {
    pub(super) fn new(
        shared: Arc<Shared>,
        writing: Arc<Crew>,
        claim: (Arc<Claims>, EntryId, Token),
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            body: ByTurns::new(writing, shared.settings.max_object, place),
            shared,
            claim,
        }
    }

    fn writer(
        &self,
    ) -> impl FnOnce(Option<Box<Growing>>, &[Bytes]) -> Result<Box<Growing>, DiskFailure> + Send + 'static
    {
        let (shared, id) = (Arc::clone(&self.shared), self.claim.1);
        move |growing, pieces| {
            let home = shared.place.home()?;
            let take_room = |length| {
                let has_room = shared.room.take(&home, length)?;
                has_room.then_some(()).ok_or(DiskFailure::NoRoom)
            };
            take_room(pieces.iter().map(|piece| piece.len() as u64).sum())?;
            let mut growing = match growing {
                None => {
                    take_room(HEAD_ROOM)?;
                    Box::new(Growing::begin(&Folder::create(&home, id)?)?)
                }
                Some(growing) => growing,
            };
            pieces.iter().try_for_each(|piece| growing.append(piece))?;
            Ok(growing)
        }
    }
}

impl Spool for DirectorySpool {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
        let write = self.writer();
        Box::pin(self.body.take(chunk, write))
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
            let flush = self.body.flush(self.writer());
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
            let body = self.body.writing.run(job).await?;
            if is_claimed {
                let (claims, _, token) = &self.claim;
                claims.take(id, *token);
            }
            Ok(Content::File(Arc::new(body)))
        })
    }
}
