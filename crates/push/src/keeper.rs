//! Who keeps documents: this process, or Redis for several of them.

use std::sync::Arc;

use crate::changes::journal::{Journal, JournalError};
use crate::documents::Documents;
use crate::fleet::{Fleet, FleetError, FleetStats};
use crate::publishing::coming::Coming;
use crate::publishing::wish::{Done, Refused, Wish};
use crate::publishing::writer::Writer;

/// Where wishes go.
pub(crate) enum Keeper {
    /// A thread of this process, with a log or without.
    Journal(Writer),
    /// Redis.
    Redis(Box<Fleet>),
}

/// Why documents cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// In the directory that was named.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// In Redis.
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

    /// Has all of these happen, or none.
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

    /// Lets another process take up the documents. Redis has room for both.
    pub(crate) async fn give_up(&self) {
        if let Self::Journal(writer) = self {
            writer.give_up().await;
        }
    }

    /// Goes on.
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
