//! A body that is too large for memory, on its way into a file.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::DiskFailure;
use super::by_turns::ByTurns;
use super::crew::Crew;
use super::expiry;
use super::files::Files;
use super::removals::Moment;
use super::write::Draft;
use crate::content::Content;
use crate::tier::{BoxFuture, EntryId, Spool, TierError};

pub(super) struct DiskSpool {
    files: Arc<Files>,
    began: Moment,
    body: ByTurns<Draft>,
}

impl DiskSpool {
    pub(super) fn new(files: Arc<Files>, writing: Arc<Crew>, place: OwnedSemaphorePermit) -> Self {
        Self {
            began: files.now(),
            body: ByTurns::new(writing, files.settings.max_object, place),
            files,
        }
    }

    fn writer(
        &self,
    ) -> impl FnOnce(Option<Box<Draft>>, &[Bytes]) -> Result<Box<Draft>, DiskFailure> + Send + 'static
    {
        let files = Arc::clone(&self.files);
        move |draft, pieces| {
            let mut draft = match draft {
                None => Box::new(Draft::begin_headless(&files)?),
                Some(draft) => draft,
            };
            pieces.iter().try_for_each(|piece| draft.append(piece))?;
            Ok(draft)
        }
    }
}

impl Spool for DiskSpool {
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
            let began = self.began;
            let flush = self.body.flush(self.writer());
            let job = move || flush()?.finish(id, &head, expiry::after(expires), began);
            self.body.writing.run(job).await.map(Content::File)
        })
    }
}
