//! The start of a server: sockets, tiers and state.

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::error::ServerError;
use super::run::Started;
use super::signals::{OnReopen, Signals};
use super::sockets::{BoundSockets, take_addresses};
use super::tiers::{self, TierStartError};
use crate::config::{Config, Source, UpdateStore};
use crate::control::{Handle, MAX_WAITING, OnStage, Reloader, ServerStage};
use crate::lifecycle::InheritedSockets;
use crate::observe::{Kind, Notices, Traces};
use crate::session::FinishedRequest;
use crate::session::finished::OnFinished;
use crate::shared::{Shared, start_push};
use crate::watched::page_finder;

/// A server with its sockets bound.
pub struct Server {
    bound: BoundSockets,
    config: Config,
    notices: Notices,
    on_finished: Option<OnFinished>,
    traces: Option<Traces>,
    on_reopen: Option<OnReopen>,
    source: Source,
    on_stage: Option<OnStage>,
    inherited: InheritedSockets,
}

impl Server {
    /// Binds the addresses, or takes the inherited sockets. Events are logged to `notices`.
    pub fn bind(
        config: Config,
        notices: Notices,
        mut inherited: InheritedSockets,
    ) -> Result<Self, ServerError> {
        let bound = take_addresses(&config, &mut inherited);
        let bound = bound.inspect_err(|error| inherited.failed(&error.to_string()))?;
        Ok(Self {
            bound,
            config,
            notices,
            on_finished: None,
            traces: None,
            on_reopen: None,
            source: Source::default(),
            on_stage: None,
            inherited,
        })
    }

    /// Sets a callback for every finished request. It runs on the serving thread, so it must not block.
    #[must_use]
    pub fn on_finished(
        mut self,
        tell: impl Fn(&FinishedRequest<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_finished = Some(Arc::new(tell));
        self
    }

    /// Enables tracing.
    #[must_use]
    pub fn traced(mut self, traces: Traces) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Sets a callback for SIGUSR1, to reopen log files.
    #[must_use]
    pub fn on_reopen(mut self, reopen: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_reopen = Some(Box::new(reopen));
        self
    }

    /// Sets the source from which the configuration is reloaded.
    #[must_use]
    pub fn reloads_from(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Sets a callback for the server's stages.
    #[must_use]
    pub fn on_stage(mut self, tell: impl Fn(ServerStage) + Send + Sync + 'static) -> Self {
        self.on_stage = Some(Arc::new(tell));
        self
    }

    /// Starts the tiers, and loads the purges of previous processes. Background tasks and signal handling run
    /// from now on.
    pub fn start(mut self) -> Result<Started, ServerError> {
        let inherited = std::mem::take(&mut self.inherited);
        let started = self.start_taking_over(&inherited);
        let started = started.inspect_err(|error| inherited.failed(&error.to_string()))?;
        Ok(Started {
            inherited,
            ..started
        })
    }

    fn start_taking_over(mut self, inherited: &InheritedSockets) -> Result<Started, ServerError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let _tasks_go_there = runtime.enter();
        let signals = Signals::listen(self.on_reopen.take()).map_err(ServerError::Thread)?;
        let push = &self.config.push;
        let keeps_documents = push.is_on() && push.settings.directory.is_some();
        let keeps_updates = matches!(push.mercure.kept, Some(UpdateStore::Directory(..)));
        if self.config.tiers.disk.is_some() || keeps_documents || keeps_updates {
            let handed_over = inherited.ask_for_disk();
            handed_over.map_err(TierStartError::Handover)?;
        }
        let tiers = tiers::start(&self.config, runtime.handle(), &self.notices);
        let tiers = runtime.block_on(tiers)?;
        let push = start_push(&self.config)?;
        let config = Arc::new(self.config);
        let mut shared = Shared::start(config, push, tiers, self.notices, page_finder);
        shared.keep_updates()?;
        shared.on_finished = self.on_finished;
        if let Some(traces) = self.traces {
            shared.metrics.trace(traces);
        }
        runtime.block_on(load_rules(&shared));
        let (ask, commands) = mpsc::channel(MAX_WAITING);
        let reloader = Reloader::new(self.source, &shared.config, self.on_stage.clone(), commands)
            .map_err(ServerError::Thread)?;
        let lifecycle = &shared.lifecycle;
        lifecycle.predecessor.set_serves(inherited.takes_over());
        for (label, socket) in self.bound.copies {
            lifecycle.listens(label, socket);
        }
        Ok(Started {
            addresses: self.bound.addresses,
            listeners: self.bound.listeners,
            handle: Handle::new(Arc::new(shared), ask),
            reloader,
            on_stage: self.on_stage,
            inherited: InheritedSockets::default(),
            signals,
            runtime,
        })
    }
}

/// Applies the purge rules that previous processes recorded.
async fn load_rules(shared: &Shared) {
    let line = match shared.engine.cache.load_rules().await {
        Ok(loaded) if loaded.is_damaged => {
            "disk: the purge journal was damaged and has been set aside: entries purged shortly before the last \
             process ended may reappear; repeat those purges"
                .to_owned()
        }
        Ok(_) => return,
        Err(error) => format!(
            "disk: the purge journal cannot be read ({error}): entries purged shortly before the last process \
             ended may reappear; repeat those purges"
        ),
    };
    shared.notices.say(Kind::PurgesLost, "purges", line);
}
