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
mod sent_by_application;
#[cfg(test)]
mod tests;
mod unsent;

use std::sync::Arc;

use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Clock, Origin, OriginError, OriginRequest, OriginResponse};
use tokio::task::spawn_blocking;

use answer::{FileRequest, answer, answer_if_found};
pub(crate) use answer::{bare, media_type, with_slash};
pub(crate) use lookup::{FoundPath, find, open_root, read_start};
pub(crate) use path::{is_hidden, named};
pub(crate) use root::Root;
pub(crate) use sent_by_application::{NamedDirectory, SendfileOrigin};
pub(crate) use unsent::is_unsent;

/// Origin of a route with a directory, and with an application for all that is no file.
pub(crate) struct FilesFirstOrigin {
    files: DirectoryOrigin,
    application: Arc<dyn Origin>,
}

impl FilesFirstOrigin {
    pub(crate) fn new(root: Root, application: Arc<dyn Origin>) -> Self {
        Self {
            files: DirectoryOrigin::new(root),
            application,
        }
    }
}

impl Origin for FilesFirstOrigin {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        if !may_be_a_file(&request) {
            return self.application.fetch(request);
        }
        Box::pin(async move {
            let file_request = self.files.request(&mut request);
            let root = Arc::clone(&self.files.root);
            let looked_up = spawn_blocking(move || {
                let found = answer_if_found(&root, &file_request);
                (found, file_request.fields)
            });
            let (found, fields) = looked_up.await.map_err(|_| OriginError::Disconnected)?;
            let Some(mut response) = found? else {
                request.fields = fields;
                return self.application.fetch(request).await;
            };
            // A cookie makes a request personal, but no file.
            response.fields.push("Cache-Control", "public");
            Ok(response)
        })
    }
}

/// Returns true for a request that a file could answer.
fn may_be_a_file(request: &OriginRequest) -> bool {
    matches!(request.method, Method::GET | Method::HEAD)
        && !request.upgrade
        && matches!(request.body, Body::Empty)
        && path::named(&request.target).is_some()
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

    /// Takes the fields of a request.
    fn request(&self, request: &mut OriginRequest) -> FileRequest {
        FileRequest {
            method: request.method.clone(),
            target: request.target.clone(),
            fields: std::mem::take(&mut request.fields),
            now: self.clock.now(),
        }
    }
}

impl Origin for DirectoryOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let root = Arc::clone(&self.root);
        let mut request = request;
        let file_request = self.request(&mut request);
        Box::pin(async move {
            let answered = spawn_blocking(move || answer(&root, &file_request)).await;
            answered.unwrap_or(Err(OriginError::Disconnected))
        })
    }
}
