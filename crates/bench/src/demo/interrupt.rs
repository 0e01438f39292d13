//! Ctrl-C, and whatever else asks a process to end.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::load::Stop;

/// Knows whether the process was asked to end.
pub(super) struct Interrupt {
    stop: Stop,
    /// Closed when somebody wants the end.
    asked: Receiver<()>,
}

impl Interrupt {
    /// From now on the process is not ended by a signal, but asked.
    pub(super) fn watch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate, mut hangup) = {
            let _within = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            )
        };
        let stop = Stop::default();
        let (asking, asked) = channel::<()>();
        let told = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        _ = hangup.recv() => {}
                    }
                });
                told.stop();
                drop(asking);
            })?;
        Ok(Self { stop, asked })
    }

    /// What ends a load.
    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.stop.is_wanted()
    }

    /// Waits until somebody wants the end.
    pub(super) fn wait(&self) {
        let _ = self.asked.recv();
    }
}
