//! Threads of a node that follow Redis.

use std::future::Future;
use std::sync::mpsc::sync_channel;
use std::thread;

use microcache_store::redis::RedisStartError;
use tokio::sync::oneshot;

use super::connection::FleetConnection;
use crate::settings::FleetSettings;

/// Error starting a node.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The settings are invalid, or Redis rejects them.
    #[error("push_redis: {0}")]
    Redis(RedisStartError),
    /// The thread cannot be started.
    #[error("the thread that reads push_redis cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Starts a thread that reads, and ends when the returned sender is dropped. Returns a connection for other threads; those
/// of the thread are one for blocking reads, and another one.
pub(crate) fn start_thread<F: Future<Output = ()>>(
    name: &str,
    settings: FleetSettings,
    run: impl FnOnce(FleetConnection, FleetConnection) -> F + Send + 'static,
) -> Result<(FleetConnection, oneshot::Sender<()>), FleetError> {
    let (started, starting) = sync_channel(1);
    let (alive, ended) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(FleetError::Thread)?;
    let work = async move || {
        let [writing, reading, other] = match FleetConnection::start_three(&settings).await {
            Ok(connections) => connections,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let _ = started.send(Ok(writing));
        tokio::select! {
            () = run(reading, other) => {}
            _ = ended => {}
        }
    };
    let named = thread::Builder::new().name(name.to_owned());
    named
        .spawn(move || runtime.block_on(work()))
        .map_err(FleetError::Thread)?;
    let connection = starting.recv().unwrap_or(Err(RedisStartError::Ended));
    Ok((connection.map_err(FleetError::Redis)?, alive))
}
