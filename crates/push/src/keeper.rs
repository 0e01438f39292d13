//! The storage backend of documents: this process, or Redis for several nodes.

use std::sync::Arc;

use crate::changes::journal::{Journal, JournalError};
use crate::documents::Documents;
use crate::fleet::{Fleet, FleetError, FleetStats};
use crate::publishing::coming::Coming;
use crate::publishing::wish::{Done, Refused, Wish};
use crate::publishing::writer::Writer;

/// The backend that executes write requests.
pub(crate) enum Keeper {
    /// A thread of this process, with or without a log.
    Journal(Writer),
    /// Redis, shared by several nodes.
    Redis(Box<Fleet>),
}

/// Error starting the backend.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The log in `push_directory` cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Redis cannot be used.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

impl Keeper {
    pub(crate) fn start(
        documents: &Arc<Documents>,
        journal: Option<Journal>,
    ) -> Result<Self, KeepError> {
        if let Some(settings) = &documents.settings.fleet {
            let fleet = Fleet::start(settings.clone(), documents)?;
            return Ok(Self::Redis(Box::new(fleet)));
        }
        let writer = Writer::start(Arc::clone(documents), journal);
        Ok(Self::Journal(writer.map_err(JournalError::NoThread)?))
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn ask(
        &self,
        wishes: Vec<Wish>,
        coming: Coming,
    ) -> Result<Vec<Done>, Refused> {
        match self {
            Self::Journal(writer) => writer.ask(wishes, coming).await,
            Self::Redis(fleet) => {
                let done = fleet.ask(&wishes).await;
                drop(coming);
                done
            }
        }
    }

    /// Hands the documents over to another process. A no-op with Redis, which serves both.
    pub(crate) async fn give_up(&self) {
        if let Self::Journal(writer) = self {
            writer.give_up().await;
        }
    }

    /// Takes the documents back after a failed handover.
    pub(crate) async fn take_back(&self) {
        if let Self::Journal(writer) = self {
            writer.take_back().await;
        }
    }

    pub(crate) fn fleet(&self) -> Option<FleetStats> {
        match self {
            Self::Journal(_) => None,
            Self::Redis(fleet) => Some(fleet.stats()),
        }
    }
}
