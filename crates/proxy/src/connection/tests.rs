//! Real connections before an origin that panics at some requests: a panic affects one request only, and the last
//! response is not followed by a wait that has no use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{
    Body, BodyError, BoxFuture, Frame, Origin, OriginError, OriginRequest, OriginResponse, Source,
};
use microcache_policy::{FieldsBuf, Scheme};
use microcache_store::Tiers;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Activity, ClientTransport, Connection, PlainSocket};
use crate::config::{Config, Input};
use crate::observe::Notices;
use crate::session::{Caller, Session};
use crate::shared::Shared;
use crate::watched::page_finder;

/// Size of a body that does not fit into the buffers of a socket.
const LARGE: usize = 8 * 1024 * 1024;

/// Answers everything except the targets it panics at.
struct Faulty;

impl Origin for Faulty {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(async move {
            let body = match &request.target[..] {
                b"/panic" => panic!("this panic is part of a test"),
                b"/panic-in-body" => Body::Stream(Box::new(FaultyBody { begun: false })),
                b"/large" => Body::Full(vec![b'.'; LARGE].into()),
                _ => Body::Full(Bytes::from_static(b"well")),
            };
            let mut fields = FieldsBuf::new();
            fields.push("Cache-Control", "max-age=100");
            Ok(OriginResponse {
                status: 200,
                fields,
                length: (request.target[..] == *b"/large").then_some(LARGE as u64),
                body,
                tunnel: None,
                waited: 0,
            })
        })
    }
}

struct FaultyBody {
    begun: bool,
}

impl Source for FaultyBody {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        assert!(!self.begun, "this panic is part of a test");
        self.begun = true;
        Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(b"some")))))
    }
}

fn shared() -> Arc<Shared> {
    let config = Config::read(Input {
        urls: &["http://localhost:3000".to_owned()],
        ..Input::default()
    });
    Arc::new(Shared::before(
        (&[Arc::new(Faulty)], None),
        Arc::new(config.unwrap()),
        Tiers::default(),
        Notices::default(),
        Arc::default(),
        page_finder,
    ))
}

/// Accepts a connection.
async fn accept(listener: &TcpListener, shared: &Arc<Shared>) -> Connection {
    let (stream, peer) = listener.accept().await.unwrap();
    let clock = shared.engine.clock;
    let permit = shared.connection_limits.admit(&clock).await.unwrap();
    let caller = Caller::at(peer.ip());
    let now = clock.now();
    let activity = Arc::new(Activity::new(now, caller.network()));
    let session = Session::new(Arc::clone(shared), caller, Scheme::Http);
    let socket = PlainSocket::new(stream.into_std().unwrap());
    Connection::new(
        ClientTransport::Plain(socket),
        session,
        activity,
        permit,
        now,
    )
}

/// Returns a connection with its client.
pub(super) async fn connection() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shared = shared();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, connection) = tokio::join!(client, accept(&listener, &shared));
    (connection, client.unwrap())
}

async fn start() -> SocketAddr {
    let shared = shared();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let connection = accept(&listener, &shared).await;
            tokio::spawn(connection.serve());
        }
    });
    address
}

/// Returns the response to the last request on a connection.
async fn answer(address: SocketAddr, method: &str, target: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn check(method: &str, target: &str, expected: &str) {
    check_that(method, target, |answer| answer.starts_with(expected)).await;
}

async fn check_that(method: &str, target: &str, expected: impl Fn(&str) -> bool) {
    let address = start().await;
    // The second waits for the first one's response where that can be shared.
    let both = tokio::join!(
        answer(address, method, target),
        answer(address, method, target)
    );
    for answer in [both.0, both.1] {
        assert!(expected(&answer), "{method} {target}: {answer}");
    }
    let after = answer(address, "GET", "/").await;
    assert!(after.starts_with("HTTP/1.1 200 OK"), "{after}");
}

#[tokio::test]
async fn a_request_that_is_not_shared() {
    check("POST", "/panic", "HTTP/1.1 500 ").await;
}

#[tokio::test]
async fn a_request_that_is_shared() {
    check("GET", "/panic", "HTTP/1.1 500 ").await;
}

#[tokio::test]
async fn during_a_body_shared_by_all() {
    // A request after the failed body is sent again, and may fail behind its head: then the response is visibly
    // incomplete.
    check_that("GET", "/panic-in-body", |answer| {
        let broke_off = answer.starts_with("HTTP/1.1 200 ")
            && answer.contains("Transfer-Encoding: chunked")
            && !answer.ends_with("0\r\n\r\n");
        answer.starts_with("HTTP/1.1 502 ") || broke_off
    })
    .await;
}

/// Returns the size of a function's future.
const fn size_of_future<Arguments, Future>(_: &impl Fn(Arguments) -> Future) -> usize {
    size_of::<Future>()
}

/// Ten thousand of them wait for a request or for the next event: none should carry state that it does not
/// need.
#[test]
fn a_connection_that_waits_is_small() {
    assert!(size_of_future(&Connection::serve) <= 512);
}

/// Each miss has one.
#[test]
fn the_exchange_of_a_miss_is_small() {
    const fn size_of_future<A, B, Future>(_: &impl Fn(A, B) -> Future) -> usize {
        size_of::<Future>()
    }
    assert!(size_of_future(&Connection::exchange) <= 1408);
}

/// Serves these bytes to a client that closes after the last response. Returns `true` if its close was waited for.
async fn expects_input_after(input: &str) -> bool {
    let (connection, mut client) = connection().await;
    client.write_all(input.as_bytes()).await.unwrap();
    tokio::spawn(async move {
        let _ = client.read_to_end(&mut Vec::new()).await;
    });
    let (connection, _) = connection.serve_requests(None).await;
    connection.expects_input()
}

#[tokio::test]
async fn the_close_of_a_client_that_has_announced_its_last_request_is_not_waited_for() {
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(!expects_input_after(last).await);
    assert!(!expects_input_after("GET / HTTP/1.0\r\n\r\n").await);
    let two = format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{last}");
    assert!(!expects_input_after(&two).await);
}

#[tokio::test]
async fn input_behind_the_last_request_is_read() {
    let close = "Host: a\r\nConnection: close\r\n";
    let body = format!("POST / HTTP/1.1\r\n{close}Content-Length: 1\r\n\r\nx");
    assert!(expects_input_after(&body).await);
    let two = format!("GET / HTTP/1.1\r\n{close}\r\nGET / HTTP/1.1\r\n{close}\r\n");
    assert!(expects_input_after(&two).await);
}

#[tokio::test]
async fn a_hit_that_is_asked_for_at_once_needs_no_events() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shared = shared();
    // The first request is a miss, and waits for the origin.
    for waits in [true, false] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let connection = accept(&listener, &shared).await;
        let (connection, _) = connection.serve_requests(None).await;
        let is_watched = |socket: &PlainSocket| matches!(socket, PlainSocket::Watched { .. });
        assert!(
            matches!(&connection.stream, ClientTransport::Plain(socket) if is_watched(socket) == waits)
        );
        // A hit is sent with the end of the connection, in one packet.
        let received = recv(&client, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        assert!(waits || received.is_err());
        drop(connection);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[tokio::test]
async fn a_large_hit_that_is_asked_for_at_once_is_sent_as_the_client_reads() {
    let address = start().await;
    for _ in 0..2 {
        let answer = answer(address, "GET", "/large").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(body.len(), LARGE);
    }
}

#[tokio::test]
async fn a_client_that_sends_its_first_head_slowly_is_served() {
    let address = start().await;
    let mut client = TcpStream::connect(address).await.unwrap();
    for piece in [
        "G",
        "ET / HTTP/1.1\r\nHost: a\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "Host: a\r\n",
    ] {
        // Every other task of the test's thread runs until it waits.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        client.write_all(piece.as_bytes()).await.unwrap();
    }
    client
        .write_all(b"Connection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
}

#[tokio::test]
async fn a_client_that_closes_its_sending_side_at_once_is_served() {
    let address = start().await;
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
