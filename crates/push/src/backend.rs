//! The storage backend of documents: this process, or Redis for several nodes.

use std::sync::Arc;

use microcache_store::TierError;

use crate::changes::journal::{ChangeJournal, JournalError};
use crate::documents::Documents;
use crate::fleet::{FleetError, FleetStats, RedisBackend};
use crate::publishing::upload::UploadReservation;
use crate::publishing::write_error::WriteError;
use crate::publishing::write_request::{WriteOutcome, WriteRequest};
use crate::publishing::writer::DocumentWriter;

/// The backend that executes write requests.
pub(crate) enum Backend {
    /// A thread of this process, with or without a log.
    Journal(DocumentWriter),
    /// Redis, shared by several nodes.
    Redis(Box<RedisBackend>),
}

/// Error starting the backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The log in `push_directory` cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Redis cannot be used.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

impl Backend {
    pub(crate) fn start(
        documents: &Arc<Documents>,
        journal: Option<ChangeJournal>,
    ) -> Result<Self, BackendError> {
        if let Some(settings) = &documents.settings.fleet {
            let fleet = RedisBackend::start(settings.clone(), documents)?;
            return Ok(Self::Redis(Box::new(fleet)));
        }
        let writer = DocumentWriter::start(Arc::clone(documents), journal);
        Ok(Self::Journal(writer.map_err(JournalError::NoThread)?))
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn submit(
        &self,
        writes: Vec<WriteRequest>,
        reservation: UploadReservation,
    ) -> Result<Vec<WriteOutcome>, WriteError> {
        match self {
            Self::Journal(thread) => thread.submit(writes, reservation).await,
            Self::Redis(fleet) => {
                let done = fleet.submit(&writes).await;
                drop(reservation);
                done
            }
        }
    }

    /// Hands the documents over to another process. A no-op with Redis, which serves both.
    pub(crate) async fn hand_over(&self) {
        if let Self::Journal(writer) = self {
            writer.hand_over().await;
        }
    }

    /// Takes the documents back after a failed handover.
    pub(crate) async fn take_back(&self) {
        if let Self::Journal(writer) = self {
            writer.take_back().await;
        }
    }

    /// Uses other users and passwords for Redis from now on.
    pub(crate) async fn change_login(&self, urls: &[String]) -> Result<(), TierError> {
        match self {
            Self::Journal(_) => Ok(()),
            Self::Redis(fleet) => fleet.change_login(urls).await,
        }
    }

    pub(crate) fn fleet_stats(&self) -> Option<FleetStats> {
        match self {
            Self::Journal(_) => None,
            Self::Redis(fleet) => Some(fleet.stats()),
        }
    }
}
