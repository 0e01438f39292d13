//! HTTP server of the simulated origin.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::application::Application;
use super::counters::OriginCounters;
use super::settings::Settings;

/// Maximum number of connections; further ones wait in the listen backlog.
const MAX_CONNECTIONS: usize = 20_000;

/// Timeout for a request head, and keep-alive timeout.
const MAX_IDLE: Duration = Duration::from_secs(75);

/// Maximum size of a request head, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Reasons why the origin cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listen address cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// A system call failed.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Origin that is bound to its address, but not yet serving.
pub struct OriginServer {
    listener: TcpListener,
    address: SocketAddr,
    application: Arc<Application>,
    /// Number of workers, which bounds the blocking threads.
    workers: usize,
}

impl OriginServer {
    /// Binds the listen address.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if that fails.
    pub fn bind(settings: Settings) -> Result<Self, Error> {
        let wanted = settings.listen();
        let bind_error = |error| Error::Listen(wanted, error);
        let listener = TcpListener::bind(wanted).map_err(bind_error)?;
        listener.set_nonblocking(true).map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        let workers = settings.workers;
        Ok(Self {
            listener,
            address,
            application: Arc::new(Application::new(settings)),
            workers,
        })
    }

    /// Bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters.
    pub fn counters(&self) -> Arc<OriginCounters> {
        Arc::clone(self.application.counters())
    }

    /// Serves until SIGINT or SIGTERM. Calls `ready` once signals are handled and requests will be accepted.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the runtime cannot be created.
    pub fn run(self, ready: impl FnOnce()) -> Result<(), Error> {
        let runtime = self.runtime()?;
        let stop = {
            let _within = runtime.enter();
            termination_signal()?
        };
        ready();
        self.serve(runtime, stop)
    }

    /// Serves on a thread of its own until the returned handle is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the runtime or the thread cannot be created.
    pub fn start(self) -> Result<RunningOrigin, Error> {
        let runtime = self.runtime()?;
        let (address, counters) = (self.address, self.counters());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("origin".to_owned())
            .spawn(move || {
                let stopped = async move {
                    let _ = stopped.await;
                };
                self.serve(runtime, stopped)
            })?;
        Ok(RunningOrigin {
            address,
            counters,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn runtime(&self) -> io::Result<Runtime> {
        Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(self.workers)
            .build()
    }

    fn serve(self, runtime: Runtime, stop: impl Future<Output = ()>) -> Result<(), Error> {
        raise_file_limit();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            tokio::select! {
                () = accept(listener, &self.application) => {}
                () = stop => {}
            }
            Ok::<(), io::Error>(())
        })?;
        // Renders still in progress are abandoned.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Handle of a serving origin, which stops when dropped.
pub struct RunningOrigin {
    address: SocketAddr,
    counters: Arc<OriginCounters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl RunningOrigin {
    /// Bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters.
    pub fn counters(&self) -> &OriginCounters {
        &self.counters
    }
}

impl Drop for RunningOrigin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn termination_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

async fn accept(listener: tokio::net::TcpListener, application: &Arc<Application>) {
    let limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = Arc::clone(&limit).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(application), permit));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    application: Arc<Application>,
    _permit: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let application = Arc::clone(&application);
        async move { Ok::<_, Infallible>(application.answer(request).await) }
    });
    // Connection errors are of no interest to the operator.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Raises the soft limit of open files to the hard limit.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
