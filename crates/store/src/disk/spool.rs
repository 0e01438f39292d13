//! Spool: a body too large for memory, written to a file while it is received.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::chunked_write::ChunkedWriter;
use super::error::DiskFailure;
use super::expiry;
use super::files::EntryFiles;
use super::io_pool::IoPool;
use super::recent_removals::RemovalMark;
use super::write::EntryDraft;
use crate::content::Content;
use crate::tier::{EntryId, Spool, TierFuture};

pub(super) struct DiskSpool {
    files: Arc<EntryFiles>,
    began: RemovalMark,
    body: ChunkedWriter<EntryDraft>,
}

impl DiskSpool {
    pub(super) fn new(
        files: Arc<EntryFiles>,
        writing: Arc<IoPool>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            began: files.now(),
            body: ChunkedWriter::new(writing, files.settings.max_object, place),
            files,
        }
    }

    fn writer(
        &self,
    ) -> impl FnOnce(Option<Box<EntryDraft>>, &[Bytes]) -> Result<Box<EntryDraft>, DiskFailure>
    + Send
    + 'static {
        let files = Arc::clone(&self.files);
        move |draft, pieces| {
            let mut draft = match draft {
                None => Box::new(EntryDraft::begin_headless(&files)?),
                Some(draft) => draft,
            };
            pieces.iter().try_for_each(|piece| draft.append(piece))?;
            Ok(draft)
        }
    }
}

impl Spool for DiskSpool {
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
            let began = self.began;
            let flush = self.body.flush(self.writer());
            let job = move || flush()?.finish(id, &head, expiry::after(expires), began);
            self.body.writing.run(job).await.map(Content::File)
        })
    }
}
