//! Connections, and the thread they are served on.

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
use super::counters::Counters;
use super::settings::Settings;

/// The most connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 20_000;

/// How long a connection may take for a request's head, and wait for the next one.
const MAX_IDLE: Duration = Duration::from_secs(75);

/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;

/// How long to wait before accepting again when the system has no room for more.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why the application cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system has no room for it.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// An application that has its address, and serves it once it is run.
pub struct Origin {
    listener: TcpListener,
    address: SocketAddr,
    application: Arc<Application>,
    /// More threads never render.
    workers: usize,
}

impl Origin {
    /// Takes the address.
    pub fn bind(settings: Settings) -> Result<Self, Error> {
        let wanted = settings.listen();
        let in_vain = |error| Error::Listen(wanted, error);
        let listener = TcpListener::bind(wanted).map_err(in_vain)?;
        listener.set_nonblocking(true).map_err(in_vain)?;
        let address = listener.local_addr().map_err(in_vain)?;
        let workers = settings.workers;
        Ok(Self {
            listener,
            address,
            application: Arc::new(Application::new(settings)),
            workers,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is counted.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.application.counters())
    }

    /// Serves until the process is asked to stop (SIGINT, SIGTERM). Calls `ready` once it can be asked.
    pub fn run(self, ready: impl FnOnce()) -> Result<(), Error> {
        let runtime = self.runtime()?;
        let stop = {
            let _within = runtime.enter();
            asked_to_stop()?
        };
        ready();
        self.serve(runtime, stop)
    }

    /// Serves on a thread of its own until what is returned is dropped.
    pub fn start(self) -> Result<Running, Error> {
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
        Ok(Running {
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
        // Renders that still go on are for nobody.
        runtime.shutdown_background();
        Ok(())
    }
}

/// An application that serves.
pub struct Running {
    address: SocketAddr,
    counters: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn asked_to_stop() -> io::Result<impl Future<Output = ()>> {
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
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(application), place));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    application: Arc<Application>,
    _place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let application = Arc::clone(&application);
        async move { Ok::<_, Infallible>(application.answer(request).await) }
    });
    // A connection that fails has told its client so; there is nobody else to tell.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Thousands of connections need as many files as the system allows.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
