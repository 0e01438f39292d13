//! Listener and thread of the admin interface.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use microcache_engine::cache::NodeSlot;
use microcache_proxy::{Handle, SharedSecret};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::api;
use crate::connections::{AdminConnections, IdleSince};
use crate::interface::Interface;
use crate::live::{Cut, LiveStream};
use crate::node_list::NodeList;
use crate::nodes;
use crate::patient::Patient;
use crate::stream;

/// Time limit for a request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request head.
const MAX_HEAD: usize = 128 * 1024;
/// Kernel send buffer for each client, in bytes; the kernel doubles it.
const SEND_BUFFER: usize = 64 * 1024;
/// Pause after a failed accept: file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Niceness of the admin thread: on a single core, a purge does not delay visitors.
const NICENESS: i32 = 5;

/// Admin interface, bound to its address.
pub struct Admin {
    listener: TcpListener,
    token: Option<SharedSecret>,
}

impl Admin {
    /// Binds the address. With a secret, requests have to carry it.
    pub fn bind(address: SocketAddr, token: Option<SharedSecret>) -> io::Result<Self> {
        Self::on(TcpListener::bind(address)?, token)
    }

    /// Uses a socket that is already listening.
    pub fn on(listener: TcpListener, token: Option<SharedSecret>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // Connections inherit it. The kernel would otherwise buffer megabytes for a client that reads nothing.
        set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
        Ok(Self { listener, token })
    }

    /// Duplicates the socket for the next process.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }

    /// Listening address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves on a separate thread until the process exits.
    pub fn start(self, handle: Handle) -> io::Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let replaced = handle.clone();
        let slot = NodeSlot::new();
        let interface = Arc::new(Interface {
            handle,
            token: self.token,
            connections: Arc::default(),
            started: Instant::now(),
            refused: AtomicU64::new(0),
            live: LiveStream::default(),
            nodes: NodeList::new(&slot),
            windows: Mutex::default(),
        });
        let router = api::router(&interface);
        let connections = Arc::clone(&interface.connections);
        let listener = self.listener;
        thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || {
                // Without the permission, the thread keeps the default niceness.
                let _ = rustix::process::nice(NICENESS);
                runtime.spawn(nodes::publish(Arc::clone(&interface), slot));
                runtime.spawn(stream::watch(interface));
                runtime.block_on(async {
                    // Open connections are served to the end.
                    tokio::select! {
                        () = accept(listener, router, connections) => {}
                        () = replaced.replaced() => {}
                    }
                    std::future::pending::<()>().await;
                });
            })?;
        Ok(())
    }
}

async fn accept(listener: TcpListener, router: Router, connections: Arc<AdminConnections>) {
    // The socket is valid; only the runtime could refuse it.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                connections.spawn(|activity| serve(stream, peer, activity, router));
                // A request that has already arrived is answered before the connection can be evicted.
                yield_now().await;
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, activity: IdleSince, router: Router) {
    let service = TowerToHyperService::new(router);
    let cut = Cut::default();
    let may_cut = cut.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(activity.clone());
        request.extensions_mut().insert(may_cut.clone());
        let answer = hyper::service::Service::call(&service, request.map(Body::new));
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    tokio::select! {
        // Disconnects of clients are not logged.
        _ = connection => {}
        () = cut.wanted() => {}
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn an_aborted_connection_ends_without_sending_the_rest() {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.set_nonblocking(true).expect("a listener");
            let address = listener.local_addr().expect("an address");
            let router = Router::new().route(
                "/",
                get(|Extension(cut): Extension<Cut>| async move {
                    cut.cut();
                    std::future::pending::<()>().await;
                }),
            );
            tokio::spawn(accept(listener, router, Arc::default()));
            let mut client = TcpStream::connect(address).await.expect("a connection");
            let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(request).await.expect("sent");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.expect("an end");
            assert!(answer.is_empty(), "{answer:?}");
        });
    }
}
