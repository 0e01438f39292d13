//! Location of a record in the pool.

use super::connection::MetaResponses;
use super::protocol::{MetaRequest, MetaResponse};
use super::server::{ConnectionLane, PoolServer};
use crate::tier::{EntryId, TierError};

/// Location of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordItem<'a> {
    pub(super) id: EntryId,
    pub(super) server: &'a PoolServer,
    /// Index of the server.
    pub(super) index: usize,
    pub(super) max_item: usize,
    pub(super) max_object: u64,
}

impl RecordItem<'_> {
    pub(super) async fn request(&self, request: MetaRequest) -> Result<MetaResponse, TierError> {
        self.server
            .request(ConnectionLane::of(self.id), request)
            .await
    }

    pub(super) async fn request_all(
        &self,
        request: MetaRequest,
    ) -> Result<MetaResponses, TierError> {
        self.server
            .send(ConnectionLane::of(self.id), request, 1)?
            .await
    }
}
