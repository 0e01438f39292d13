//! Test server on a separate thread, which counts requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http1,
    Http1Tls,
    Http2,
    Http2Tls,
}

/// Test server, stopped on drop.
pub(crate) struct Server {
    address: SocketAddr,
    spoken: Spoken,
    certificate: String,
    counts: Arc<Counts>,
    _end: oneshot::Sender<()>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    received: AtomicU64,
}

impl Server {
    /// Response to a request.
    pub(crate) const BODY: &'static str = "what a cache has kept";

    pub(crate) fn start(spoken: Spoken) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
        listener.set_nonblocking(true).expect("it does not block");
        let address = listener.local_addr().expect("it has an address");
        let (tls, certificate) = tls(spoken);
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let (end, ended) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("there is a runtime");
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, spoken, &tls, &counted) => {}
                    _ = ended => {}
                }
            });
        });
        Self {
            address,
            spoken,
            certificate,
            counts,
            _end: end,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = match self.spoken {
            Spoken::Http1 | Spoken::Http2 => "http",
            Spoken::Http1Tls | Spoken::Http2Tls => "https",
        };
        format!("{scheme}://{}{path}", self.address)
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Number of body bytes.
    pub(crate) fn received(&self) -> u64 {
        self.counts.received.load(Ordering::SeqCst)
    }
}

/// Self-signed certificate.
fn tls(spoken: Spoken) -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let made = made.expect("a certificate is made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are known")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("the certificate is fit");
    config.alpn_protocols = match spoken {
        Spoken::Http2 | Spoken::Http2Tls => vec![b"h2".to_vec()],
        Spoken::Http1 | Spoken::Http1Tls => vec![b"http/1.1".to_vec()],
    };
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}

async fn accept(
    listener: std::net::TcpListener,
    spoken: Spoken,
    tls: &TlsAcceptor,
    counts: &Arc<Counts>,
) {
    let listener = TcpListener::from_std(listener).expect("it can be waited for");
    loop {
        let (socket, _) = listener.accept().await.expect("it accepts");
        let (tls, counts) = (tls.clone(), Arc::clone(counts));
        // Disconnects by the client are ignored.
        tokio::spawn(async move { serve(socket, spoken, &tls, &counts).await.ok() });
    }
}

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn serve(
    socket: TcpStream,
    spoken: Spoken,
    tls: &TlsAcceptor,
    counts: &Arc<Counts>,
) -> Ended {
    match spoken {
        Spoken::Http1 => http1(socket, counts).await,
        Spoken::Http1Tls => http1(tls.accept(socket).await?, counts).await,
        Spoken::Http2 => http2(socket, counts).await,
        Spoken::Http2Tls => http2(tls.accept(socket).await?, counts).await,
    }
}

async fn http1(mut socket: impl AsyncRead + AsyncWrite + Unpin, counts: &Counts) -> Ended {
    let mut bytes = Vec::new();
    loop {
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            if socket.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        if !bytes.starts_with(b"GET /page/") {
            return Ok(socket
                .write_all(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n")
                .await?);
        }
        bytes.clear();
        counts.requests.fetch_add(1, Ordering::SeqCst);
        let answer = format!(
            "HTTP/1.1 200 OK\r\nCache-Status: c; hit\r\nContent-Length: {}\r\n\r\n{}",
            Server::BODY.len(),
            Server::BODY
        );
        socket.write_all(answer.as_bytes()).await?;
        socket.flush().await?;
    }
}

async fn http2(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    counts: &Arc<Counts>,
) -> Ended {
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let counts = Arc::clone(counts);
        tokio::spawn(async move { answer(request.into_body(), respond, &counts).await.ok() });
    }
    Ok(())
}

async fn answer(
    mut body: h2::RecvStream,
    mut respond: h2::server::SendResponse<Bytes>,
    counts: &Counts,
) -> Ended {
    while let Some(piece) = body.data().await {
        let length = piece?.len();
        body.flow_control().release_capacity(length)?;
        counts.received.fetch_add(length as u64, Ordering::SeqCst);
    }
    counts.requests.fetch_add(1, Ordering::SeqCst);
    let head = http::Response::builder()
        .header("cache-status", "c; hit")
        .body(())?;
    let mut sending = respond.send_response(head, false)?;
    sending.send_data(Bytes::from_static(Server::BODY.as_bytes()), true)?;
    Ok(())
}
