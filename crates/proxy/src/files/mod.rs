//! Origin that serves a directory.
//!
//! The cache treats it like any other origin: responses are stored by the rules of the route and revalidated by
//! their validators. Blocking file operations run on threads that may block.

mod answer;
mod content;
mod links;
mod lookup;
mod path;
mod root;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use microcache_engine::origin::BoxFuture;
use microcache_engine::{Clock, Origin, OriginError, OriginRequest, OriginResponse};
use tokio::task::spawn_blocking;

use answer::{FileRequest, answer};
pub(crate) use root::Root;

/// Origin of a route with a directory.
pub(crate) struct DirectoryOrigin {
    root: Arc<Root>,
    clock: Clock,
}

impl DirectoryOrigin {
    pub(crate) fn new(root: Root) -> Self {
        Self {
            root: Arc::new(root),
            clock: Clock::start(),
        }
    }
}

impl Origin for DirectoryOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let (root, now) = (Arc::clone(&self.root), self.clock.now());
        Box::pin(async move {
            let file_request = FileRequest {
                method: request.method,
                target: request.target,
                fields: request.fields,
                now,
            };
            let answered = spawn_blocking(move || answer(&root, &file_request)).await;
            answered.unwrap_or(Err(OriginError::Disconnected))
        })
    }
}
