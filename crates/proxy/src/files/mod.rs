//! An origin that is a directory.
//!
//! To the cache it is an origin like any other: what it answers is kept as the route says, and asked about again
//! with its validators. Everything that may wait for the disk is done on threads that may.

mod answer;
mod content;
mod found;
mod links;
mod path;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Clock, Origin, OriginError, OriginRequest, OriginResponse};
use tokio::task::spawn_blocking;

use answer::{Asked, answer};

/// A directory whose files are the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The directory.
    pub folder: PathBuf,
    /// What stands for a folder.
    pub index: String,
    /// Beside a file may lie the same in another coding: `.br`, `.zst`, `.gz`.
    pub precompressed: bool,
}

/// The origin of a route that has a directory.
pub(crate) struct Files {
    root: Arc<Root>,
    clock: Clock,
}

impl Files {
    pub(crate) fn new(root: Root) -> Self {
        Self {
            root: Arc::new(root),
            clock: Clock::start(),
        }
    }
}

impl Origin for Files {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let (root, now) = (Arc::clone(&self.root), self.clock.now());
        Box::pin(async move {
            let asked = Asked {
                method: request.method,
                target: request.target,
                fields: request.fields,
                now,
            };
            let answered = spawn_blocking(move || answer(&root, &asked)).await;
            answered.unwrap_or(Err(OriginError::Disconnected))
        })
    }
}

/// An answer without content.
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

/// The methods that files have.
const METHODS: [Method; 2] = [Method::GET, Method::HEAD];
