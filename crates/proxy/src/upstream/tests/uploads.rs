//! Requests with bodies, and answers that do not wait for them.

use super::*;
use std::task::{Context, Poll};

use microcache_engine::body::Source;
use microcache_testkit::Folder;
use rustls::ServerConfig;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::tls::{OriginTls, provider};
use crate::upstream::settings::OriginProtocol;

/// TLS with a server on this machine, on either side.
pub(super) fn tls() -> (TlsAcceptor, OriginTls) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let server = builder
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let folder = Folder::new();
    let mut client = OriginTls {
        ca: Some(folder.write("ca.pem", made.cert.pem()).into()),
        name: Some("localhost".to_owned()),
        ..OriginTls::default()
    };
    client.ready = Some(client.load(0).unwrap());
    (TlsAcceptor::from(Arc::new(server.unwrap())), client)
}

/// A request body that the test feeds.
struct Fed(mpsc::Receiver<Result<Frame, BodyError>>);

impl Source for Fed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0.poll_recv(cx)
    }
}

pub(super) type Feed = mpsc::Sender<Result<Frame, BodyError>>;

pub(super) fn upload(length: Option<u64>) -> (OriginRequest, Feed) {
    let (feed, frames) = mpsc::channel(16);
    let mut request = request(Method::POST, "/");
    request.body = Body::Stream(Box::new(Fed(frames)));
    request.length = length;
    (request, feed)
}

pub(super) const fn data(text: &'static str) -> Frame {
    Frame::Data(Bytes::from_static(text.as_bytes()))
}

#[tokio::test]
async fn a_body_without_a_length_is_sent_in_chunks_with_its_trailers() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (outgoing, feed) = upload(None);
    let mut trailers = FieldsBuf::new();
    trailers.push("X-Sum", "1");
    for frame in [
        data("hello"),
        data(" world of chunks"),
        Frame::Trailers(trailers),
    ] {
        feed.send(Ok(frame)).await.unwrap();
    }
    drop(feed);
    let serving = async {
        let mut peer = origin.accept().await;
        let head = peer.head().await;
        assert!(
            head.contains("\r\nTransfer-Encoding: chunked\r\n"),
            "{head}"
        );
        assert_eq!(
            peer.head().await,
            "15\r\nhello world of chunks\r\n0\r\nX-Sum: 1\r\n\r\n"
        );
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
    assert_eq!(group.snapshot().servers[0].idle, 1);
}

#[tokio::test]
async fn a_body_with_a_length_is_sent_as_it_is() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.upload_buffer = 4);
    let (outgoing, feed) = upload(Some(10));
    feed.send(Ok(data("hello"))).await.unwrap();
    let serving = async {
        let mut peer = origin.accept().await;
        assert!(peer.head().await.contains("\r\nContent-Length: 10\r\n"));
        assert_eq!(peer.until("hello").await, "hello");
        feed.send(Ok(data("world"))).await.unwrap();
        drop(feed);
        assert_eq!(peer.until("world").await, "world");
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn a_body_that_breaks_its_word_breaks_the_connection() {
    let failed = Err(BodyError::Disconnected);
    for (length, frames) in [
        (Some(3), vec![Ok(data("hi"))]),
        (Some(3), vec![Ok(data("hello"))]),
        (None, vec![Ok(data("hi")), failed]),
    ] {
        let origin = Origin::start().await;
        // Nothing is read ahead, so that the request is on its way when its body breaks off.
        let group = origin.group_with(|settings| settings.upload_buffer = 0);
        let (outgoing, feed) = upload(length);
        for frame in frames {
            feed.send(frame).await.unwrap();
        }
        drop(feed);
        let serving = async {
            let mut peer = origin.accept().await;
            let received = peer.until("never").await;
            assert!(!received.contains("hello") && !received.ends_with("0\r\n\r\n"));
        };
        let (answer, ()) = tokio::join!(fetch(&group, outgoing), serving);
        assert!(matches!(answer, Err(OriginError::RequestBody(_))));
        assert_eq!(group.snapshot().servers[0].health.failures, 0);
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_body() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (outgoing, feed) = upload(None);
    feed.send(Ok(data("begin"))).await.unwrap();
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig";
    let (answer, peer) = tokio::join!(fetch(&group, outgoing), origin.serve(refusal));
    assert_eq!(answer, Ok(got(413, "big")));
    assert!(feed.is_closed(), "nobody waits for the rest");
    drop(peer);
    assert_eq!(group.snapshot().servers[0].idle, 0);
}

#[tokio::test]
async fn a_response_followed_by_a_close_is_read_during_the_upload() {
    let origin = Origin::start().await;
    let group = origin.group();
    let mut outgoing = post("");
    outgoing.body = Body::Full(Bytes::from(vec![b'x'; 32 << 20]));
    let serving = async {
        let mut peer = origin.accept().await;
        peer.head().await;
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
            .await;
        peer.stream.shutdown().await.unwrap();
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(413, "big")));
    assert_eq!(group.snapshot().servers[0].idle, 0);
}

#[tokio::test]
async fn a_tls_response_followed_by_a_close_is_read_during_the_upload() {
    let origin = Origin::start().await;
    let (acceptor, tls) = tls();
    let group = origin.group_with(|settings| {
        settings.servers[0].protocol = OriginProtocol::Https;
        settings.tls = tls;
    });
    let mut outgoing = post("");
    outgoing.body = Body::Full(Bytes::from(vec![b'x'; 32 << 20]));
    let serving = async {
        let socket = origin.accept().await.stream;
        socket.set_nodelay(true).unwrap();
        let mut stream = within(acceptor.accept(socket)).await.unwrap();
        let mut head = [0; 16];
        within(stream.read_exact(&mut head)).await.unwrap();
        let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig";
        within(stream.write_all(refusal.as_bytes())).await.unwrap();
        within(stream.flush()).await.unwrap();
        // What has come of the body by now is not read: the system has the client know that nothing more will be.
    };
    let (answer, ()) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(413, "big")));
}

#[tokio::test]
async fn a_client_that_breaks_off_within_its_answer_is_not_the_servers_fault() {
    let origin = Origin::start().await;
    let (group, logged) = origin.group_and_log(|settings| settings.upload_buffer = 0);
    let (outgoing, feed) = upload(None);
    feed.send(Ok(data("one"))).await.unwrap();
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n";
    let (answer, mut peer) = tokio::join!(group.fetch(outgoing), origin.serve(answer));
    feed.send(Err(BodyError::Disconnected)).await.unwrap();
    let broken = Got {
        end: Err(BodyError::Disconnected),
        ..got(200, "begin")
    };
    assert_eq!(read(answer.unwrap()).await, broken);
    assert_eq!(peer.until("never").await, "3\r\none\r\n");
    assert_eq!(*logged.lock(), [""; 0]);
}

#[tokio::test]
async fn the_upload_continues_while_the_response_is_read() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (outgoing, feed) = upload(None);
    let serving = async {
        let mut peer = origin
            .serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for word in ["one", "two", "six"] {
            feed.send(Ok(data(word))).await.unwrap();
            let chunk = format!("3\r\n{word}\r\n");
            assert_eq!(peer.until(&chunk).await, chunk);
            peer.send(&chunk).await;
        }
        drop(feed);
        assert_eq!(peer.head().await, "0\r\n\r\n");
        peer.send("0\r\n\r\n").await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "onetwosix")));
    assert_eq!(group.snapshot().servers[0].idle, 1);
}

#[tokio::test]
async fn a_slow_client_is_not_the_servers_fault() {
    let origin = Origin::start().await;
    let group =
        origin.group_with(|settings| settings.first_byte_timeout = Duration::from_millis(20));
    let (outgoing, feed) = upload(None);
    let serving = async {
        let mut peer = origin.accept().await;
        peer.head().await;
        // Longer than the server itself may be silent.
        tokio::time::sleep(Duration::from_millis(100)).await;
        feed.send(Ok(data("late"))).await.unwrap();
        drop(feed);
        peer.until("0\r\n\r\n").await;
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn the_body_is_not_read_before_100_continue() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (mut outgoing, feed) = upload(Some(5));
    outgoing.fields.push("Expect", "100-continue");
    let serving = async {
        let mut peer = origin.accept().await;
        assert!(peer.head().await.contains("\r\nExpect: 100-continue\r\n"));
        feed.send(Ok(data("hello"))).await.unwrap();
        assert_eq!(feed.capacity(), 15, "it waits where it is");
        peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(peer.until("hello").await, "hello");
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
    assert_eq!(group.snapshot().servers[0].idle, 1);
}

#[tokio::test]
async fn a_final_answer_instead_of_continue_spares_the_body() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (mut outgoing, feed) = upload(Some(5));
    outgoing.fields.push("Expect", "100-continue");
    feed.send(Ok(data("hello"))).await.unwrap();
    let refusal = "HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno";
    let serving = async {
        let mut peer = origin.serve(refusal).await;
        assert!(
            peer.is_closed().await,
            "not a byte of the body, and no reuse"
        );
    };
    let (answer, ()) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(417, "no")));
}

#[tokio::test]
async fn a_server_that_does_not_know_continue_gets_the_body_after_a_while() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (mut outgoing, feed) = upload(Some(5));
    outgoing.fields.push("Expect", "100-continue");
    feed.send(Ok(data("hello"))).await.unwrap();
    let serving = async {
        let mut peer = origin.accept().await;
        peer.head().await;
        assert_eq!(peer.until("hello").await, "hello");
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn a_body_that_breaks_off_while_read_ahead_never_reaches_a_server() {
    for (length, error) in [
        (Some(3), BodyError::Incomplete),
        (Some(3), BodyError::Timeout),
        (None, BodyError::Disconnected),
    ] {
        let origin = Origin::start().await;
        let group = origin.group();
        let (outgoing, feed) = upload(length);
        feed.send(Ok(data("hi"))).await.unwrap();
        if error != BodyError::Incomplete {
            feed.send(Err(error.clone())).await.unwrap();
        }
        drop(feed);
        let answer = fetch(&group, outgoing).await;
        assert_eq!(answer, Err(OriginError::RequestBody(error)));
        assert!(!origin.is_called().await);
    }
}

#[tokio::test]
async fn without_room_to_read_ahead_a_body_is_streamed() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.upload_memory = 7;
        settings.max_uploads = Some(1);
    });
    let (waiting, keep) = upload(Some(10));
    keep.send(Ok(data("hello"))).await.unwrap();
    let mut waiting = Box::pin(group.fetch(waiting));
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("its body is not there"),
        () = tokio::task::yield_now() => {}
    }
    let (outgoing, feed) = upload(Some(6));
    feed.send(Ok(data("abc"))).await.unwrap();
    let serving = async {
        let mut peer = origin.accept().await;
        assert!(peer.head().await.contains("\r\nContent-Length: 6\r\n"));
        assert_eq!(peer.until("abc").await, "abc");
        assert_eq!(group.snapshot().active, 1);
        feed.send(Ok(data("def"))).await.unwrap();
        assert_eq!(peer.until("def").await, "def");
        peer.send(OK).await;
        peer
    };
    let (answer, _) = tokio::join!(fetch(&group, outgoing), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
    // What was read ahead makes room for others when it is given up.
    drop(waiting);
    let (outgoing, feed) = upload(Some(6));
    feed.send(Ok(data("abc"))).await.unwrap();
    let whole = async {
        feed.send(Ok(data("def"))).await.unwrap();
        assert!(!origin.is_called().await);
    };
    let (answer, ()) = tokio::join!(
        async { tokio::join!(fetch(&group, outgoing), origin.serve(OK)).0 },
        whole
    );
    assert_eq!(answer, Ok(got(200, "ok")));
}
