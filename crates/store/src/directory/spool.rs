//! Spool: a body too large for memory, written to a file while it is received. Capacity is reserved as it
//! grows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::claims::ClaimTable;
use super::folder::RecordFolder;
use super::record::{HEAD_ROOM, SpooledDraft};
use super::state::{DirectoryState, publish};
use crate::content::Content;
use crate::disk::chunked_write::ChunkedWriter;
use crate::disk::error::DiskFailure;
use crate::disk::io_pool::IoPool;
use crate::tier::{EntryId, PutOutcome, Spool, TierFuture, Token};

pub(super) struct DirectorySpool {
    shared: Arc<DirectoryState>,
    /// Claim under which the body is fetched.
    claim: (Arc<ClaimTable>, EntryId, Token),
    body: ChunkedWriter<SpooledDraft>,
}

impl DirectorySpool {
    pub(super) fn new(
        shared: Arc<DirectoryState>,
        writing: Arc<IoPool>,
        claim: (Arc<ClaimTable>, EntryId, Token),
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            body: ChunkedWriter::new(writing, shared.settings.max_object, place),
            shared,
            claim,
        }
    }

    fn writer(
        &self,
    ) -> impl FnOnce(Option<Box<SpooledDraft>>, &[Bytes]) -> Result<Box<SpooledDraft>, DiskFailure>
    + Send
    + 'static {
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
                    Box::new(SpooledDraft::begin(&RecordFolder::create(&home, id)?)?)
                }
                Some(growing) => growing,
            };
            pieces.iter().try_for_each(|piece| growing.append(piece))?;
            Ok(growing)
        }
    }
}

impl Spool for DirectorySpool {
    fn write(&mut self, chunk: Bytes) -> TierFuture<'_, ()> {
        let write = self.writer();
        Box::pin(self.body.take(chunk, write))
    }

    fn finish(
        mut self: Box<Self>,
        id: EntryId,
        head: Bytes,
        expires: Duration,
    ) -> TierFuture<'static, Content> {
        Box::pin(async move {
            let (claims, claimed, token) = &self.claim;
            // A variant has its own id, and the claim ended when its Vary record was stored.
            let is_claimed = *claimed == id;
            let claim = is_claimed.then(|| claims.get(id, *token)).transpose();
            let claim = claim.map_err(|_| DiskFailure::Removed)?;
            let flush = self.body.flush(self.writer());
            let shared = Arc::clone(&self.shared);
            let expires = shared.kept_until(expires);
            let job = move || {
                let (draft, body) = flush()?.complete(id, &head, expires)?;
                let folder = RecordFolder::create(&*shared.place.home()?, id)?;
                match publish(draft, &folder.lock()?, id, claim.as_deref())? {
                    PutOutcome::Stored => Ok(body),
                    PutOutcome::Superseded | PutOutcome::Refused => Err(DiskFailure::Removed),
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
