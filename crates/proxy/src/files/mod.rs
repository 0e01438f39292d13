//! Origin that serves a directory.
//!
//! The cache treats it like any other origin: responses are stored by the rules of the route and revalidated by
//! their validators. Blocking file operations run on threads that may block.

mod answer;
mod content;
mod links;
mod lookup;
mod path;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Clock, Origin, OriginError, OriginRequest, OriginResponse};
use tokio::task::spawn_blocking;

use answer::{FileRequest, answer};

/// Configuration of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Path of the directory.
    pub folder: PathBuf,
    /// Name of the index file.
    pub index: String,
    /// Serve precompressed files next to the plain ones: `.br`, `.zst`, `.gz`.
    pub precompressed: bool,
}

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

/// Returns a response without content.
fn bare(status: u16) -> OriginResponse {
    OriginResponse {
        status,
        fields: <_>::default(),
        length: Some(0),
        body: Body::Empty,
        tunnel: None,
        waited: 0,
    }
}

/// Allowed methods.
const METHODS: [Method; 2] = [Method::GET, Method::HEAD];
