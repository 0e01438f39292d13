//! An origin that speaks HTTP/2, and HTTP/1 where that is negotiated.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderValue, Request, Response};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::support::CertificateFile;

/// A running server. It ends with the test.
pub(super) struct Server {
    address: SocketAddr,
    by_tls: bool,
    seen: Arc<Seen>,
}

struct Seen {
    connections: Mutex<usize>,
    /// Methods and targets.
    requests: Mutex<Vec<String>>,
    /// Closed until the test opens it.
    gate: Semaphore,
}

impl Server {
    /// HTTP/2 and nothing else.
    pub(super) fn plain() -> Self {
        Self::start(None)
    }

    /// By TLS, and then what is agreed on among these.
    pub(super) fn by_tls(own: &CertificateFile, protocols: &[&str]) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("versions");
        let key = PrivateKeyDer::from_pem_file(own.path()).expect("a key");
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(vec![own.der()], key)
            .expect("a configuration");
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        Self::start(Some(TlsAcceptor::from(Arc::new(config))))
    }

    fn start(tls: Option<TlsAcceptor>) -> Self {
        let seen = Arc::new(Seen {
            connections: Mutex::new(0),
            requests: Mutex::default(),
            gate: Semaphore::new(0),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let server = Self {
            address: listener.local_addr().expect("it has one"),
            by_tls: tls.is_some(),
            seen: Arc::clone(&seen),
        };
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let accepting = async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                while let Ok((socket, _)) = listener.accept().await {
                    *seen.connections.lock().expect("nobody panics") += 1;
                    let (tls, seen) = (tls.clone(), Arc::clone(&seen));
                    tokio::spawn(async move {
                        let Some(tls) = tls else {
                            return by_http2(socket, seen).await;
                        };
                        let Ok(session) = tls.accept(socket).await else {
                            return;
                        };
                        match session.get_ref().1.alpn_protocol() {
                            Some(b"h2") => by_http2(session, seen).await,
                            _ => by_http1(session, &seen).await,
                        }
                    });
                }
            };
            runtime.expect("a runtime").block_on(accepting);
        });
        server
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.by_tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Answers the requests that wait at the gate, and all later ones.
    pub(super) fn open(&self) {
        self.seen.gate.close();
    }

    pub(super) fn connections(&self) -> usize {
        *self.seen.connections.lock().expect("nobody panics")
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().expect("nobody panics").clone()
    }
}

async fn by_http2(stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Seen>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let requested = format!("{} {}", request.method(), request.uri().path());
        seen.requests.lock().expect("nobody panics").push(requested);
        tokio::spawn(answer(request, respond, Arc::clone(&seen)));
    }
}

/// What is behind the gate waits for it, as does what breaks off; the rest is answered at once.
async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, seen: Arc<Seen>) {
    let target = request.uri().path().to_owned();
    if target.starts_with("/gate/") {
        assert!(
            seen.gate.acquire().await.is_err(),
            "nobody passes it closed"
        );
    }
    let mut head = Response::new(());
    let is_mirror = target.starts_with("/mirror/");
    if is_mirror {
        head.headers_mut().clone_from(request.headers());
    }
    let fresh = HeaderValue::from_static("max-age=100");
    head.headers_mut().insert("cache-control", fresh);
    let mut stream = respond.send_response(head, false).expect("it is open");
    match &*target {
        _ if is_mirror || target == "/echo" => {
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                let data = data.expect("it goes on");
                body.flow_control()
                    .release_capacity(data.len())
                    .expect("it was taken");
                stream.send_data(data, false).expect("it is open");
            }
            match body.trailers().await.expect("it goes on") {
                Some(trailers) => stream.send_trailers(trailers).expect("it is open"),
                None => stream.send_data(Bytes::new(), true).expect("it is open"),
            }
        }
        "/break" => {
            stream.send_data("begin".into(), false).expect("it is open");
            let closed = seen.gate.acquire().await.is_err();
            assert!(closed, "nobody passes it closed");
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        _ => {
            let uri = request.uri();
            let scheme = uri.scheme_str().unwrap_or_default();
            let host = uri.authority().map_or("", |host| host.as_str());
            let text = format!("{scheme} {host} {target}");
            stream.send_data(text.into(), true).expect("it is open");
        }
    }
}

/// Answers requests without content; who asks for another protocol gets what he sends back.
async fn by_http1(stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Seen) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let requested = head.split(" HTTP/").next().unwrap_or_default();
        seen.requests
            .lock()
            .expect("nobody panics")
            .push(requested.to_owned());
        let is_upgrade = head.contains("\r\nUpgrade: websocket\r\n");
        let answer = if is_upgrade {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nby HTTP/1.1"
        };
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if is_upgrade {
            let mut sent = [0; 4];
            let _ = stream.read_exact(&mut sent).await;
            let _ = stream.write_all(&sent).await;
            let _ = stream.flush().await;
            // The other side closes.
            let _ = stream.read_u8().await;
            return;
        }
    }
}
