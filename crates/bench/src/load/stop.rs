//! Stop handle of a run.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status of a process ended by SIGINT, by shell convention.
const ENDED_BY_SIGNAL: i32 = 130;

/// Stop handle of a run, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Handles are equal if they belong to the same run.
impl PartialEq for Stop {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Stop {
    /// Ends the run; the report covers the time until then.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends the run on the first SIGINT or SIGTERM, and the process on the second one.
///
/// # Errors
///
/// Failure to start the signal thread or to register a handler.
pub fn stop_on_signals(stop: &Stop) -> io::Result<()> {
    let stop = stop.clone();
    let (ready, is_ready) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let (mut interrupt, mut terminate) = match listen() {
                    Ok(signals) => signals,
                    Err(why) => return drop(ready.send(Err(why))),
                };
                let _ = ready.send(Ok(()));
                next(&mut interrupt, &mut terminate).await;
                stop.stop();
                next(&mut interrupt, &mut terminate).await;
                process::exit(ENDED_BY_SIGNAL);
            });
        })?;
    is_ready
        .recv()
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn listen() -> io::Result<(Signal, Signal)> {
    Ok((
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ))
}

async fn next(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
