//! Servers that speak HTTP/2 as they should.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use microcache_engine::Interims;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::*;
use crate::upstream::tests::uploads::{data, upload};

/// Connections and requests that a test server has received.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// The most requests there were on one of them at a time.
    most: AtomicUsize,
}

/// A request at the server.
struct IncomingRequest {
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
}

impl IncomingRequest {
    /// All that it sends, and its trailers.
    async fn content(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let body = self.request.body_mut();
        let mut content = Vec::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            content.extend(data);
        }
        Ok((content, body.trailers().await?))
    }

    fn answer(mut self, fields: &[(&'static str, &'static str)], content: &'static str) {
        let answer = response(200, fields);
        let mut stream = self.respond.send_response(answer, false).unwrap();
        stream.send_data(content.into(), true).unwrap();
    }
}

fn response(status: u16, fields: &[(&'static str, &'static str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status.try_into().unwrap();
    for (name, value) in fields {
        let value = HeaderValue::from_static(value);
        response.headers_mut().append(*name, value);
    }
    response
}

/// Serves every connection to an origin, and each request by `answer` in a task of its own.
fn serve<F>(
    origin: Origin,
    with: &Builder,
    answer: impl Fn(IncomingRequest) -> F + Clone + Send + Sync + 'static,
) -> Arc<Seen>
where
    F: Future<Output = ()> + Send + 'static,
{
    let seen = Arc::<Seen>::default();
    let (counted, with) = (Arc::clone(&seen), with.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = origin.listener.accept().await {
            counted.connections.fetch_add(1, Ordering::Relaxed);
            let (seen, with, answer) = (Arc::clone(&counted), with.clone(), answer.clone());
            tokio::spawn(async move {
                let mut connection = with.handshake(stream).await.unwrap();
                let active = Arc::new(AtomicUsize::new(0));
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let now = active.fetch_add(1, Ordering::Relaxed) + 1;
                    seen.most.fetch_max(now, Ordering::Relaxed);
                    let active = Arc::clone(&active);
                    let answer = answer(IncomingRequest { request, respond });
                    tokio::spawn(async move {
                        answer.await;
                        active.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    seen
}

/// So many at once, which are all answered well.
async fn ask_together(group: &Arc<Group>, requests: usize) {
    let ask = |_| {
        let group = Arc::clone(group);
        tokio::spawn(async move { get(&group).await })
    };
    let pending: Vec<_> = (0..requests).map(ask).collect();
    for pending in pending {
        assert_eq!(within(pending).await.unwrap(), Ok(got(200, "ok")));
    }
}

#[tokio::test]
async fn many_requests_at_once_share_a_connection() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let all_are_there = Arc::new(tokio::sync::Barrier::new(50));
    let seen = serve(origin, &Builder::new(), move |exchange| {
        let all_are_there = Arc::clone(&all_are_there);
        async move {
            all_are_there.wait().await;
            exchange.answer(&[], "ok");
        }
    });
    for _ in 0..2 {
        ask_together(&group, 50).await;
    }
    assert_eq!(seen.connections.load(Ordering::Relaxed), 1);
    let snapshot = group.snapshot();
    assert_eq!((snapshot.active, snapshot.servers[0].idle), (0, 1));
    assert_eq!(snapshot.servers[0].health.requests, 100);
}

#[tokio::test]
async fn no_more_are_on_a_connection_than_the_server_allows() {
    for allowed in [1, 3, 10] {
        let origin = Origin::start().await;
        let group = origin.http2();
        let mut with = Builder::new();
        with.max_concurrent_streams(allowed);
        let all_are_there = Arc::new(tokio::sync::Barrier::new(20));
        let seen = serve(origin, &with, move |exchange| {
            let all_are_there = Arc::clone(&all_are_there);
            async move {
                all_are_there.wait().await;
                exchange.answer(&[], "ok");
            }
        });
        ask_together(&group, 20).await;
        let most = seen.most.load(Ordering::Relaxed);
        assert!(most <= allowed as usize, "{most} of {allowed}");
        let connections = seen.connections.load(Ordering::Relaxed);
        assert!((20_usize.div_ceil(allowed as usize)..=20).contains(&connections));
    }
}

#[tokio::test]
async fn a_response_reports_the_time_of_its_request_in_the_queue() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.max_concurrent = 1);
    let queue = Arc::clone(&group);
    serve(origin, &Builder::new(), move |exchange| {
        let queue = Arc::clone(&queue);
        async move {
            let is_first = exchange.request.uri().path() == "/first";
            while is_first && queue.snapshot().queued == 0 {
                tokio::task::yield_now().await;
            }
            sleep(NOTICEABLE).await;
            exchange.answer(&[], "ok");
        }
    });
    let group = &group;
    let ask = |target| async move {
        let answer = within(group.fetch(request(Method::GET, target)));
        let answer = answer.await.unwrap();
        let waited = answer.waited;
        read(answer).await;
        waited
    };
    let (_, second) = tokio::join!(ask("/first"), ask("/second"));
    assert!(u128::from(second) >= NOTICEABLE.as_millis());
}

#[tokio::test]
async fn a_request_equals_that_of_http1() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.host = Some("app.internal".to_owned()));
    serve(origin, &Builder::new(), |mut exchange| async move {
        let request = &exchange.request;
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.uri(), "http://app.internal/a?b=|");
        assert_eq!(request.headers()["x-a"], "1");
        assert_eq!(request.headers()["content-length"], "5");
        assert_eq!(request.headers().len(), 2);
        let (content, trailers) = exchange.content().await.unwrap();
        assert_eq!((&content[..], trailers), (&b"hello"[..], None));
        exchange.answer(&[("x-b", "2"), ("x-b", "3"), ("content-length", "2")], "ok");
    });
    let mut outgoing = post("hello");
    outgoing.target = Bytes::from_static(b"/a?b=|");
    for (name, value) in [("X-A", "1"), ("Host", "b"), ("Connection", "close")] {
        outgoing.fields.push(name, value);
    }
    let answer = within(group.fetch(outgoing)).await.unwrap();
    assert_eq!(answer.length, Some(2));
    assert_eq!(answer.fields.fields().as_block(), b"x-b: 2\r\nx-b: 3\r\n");
    assert_eq!(read(answer).await, got(200, "ok"));
}

#[tokio::test]
async fn bodies_and_trailers_go_both_ways() {
    let origin = Origin::start().await;
    let group = origin.http2();
    serve(origin, &Builder::new(), |mut exchange| async move {
        assert!(!exchange.request.headers().contains_key("content-length"));
        let answer = response(200, &[]);
        let mut stream = exchange.respond.send_response(answer, false).unwrap();
        // The answer goes on while the request is read.
        let body = exchange.request.body_mut();
        while let Some(data) = body.data().await {
            stream.send_data(data.unwrap(), false).unwrap();
        }
        let mut trailers = body.trailers().await.unwrap().expect("trailers");
        trailers.insert("content-type", HeaderValue::from_static("evil"));
        stream.send_trailers(trailers).unwrap();
    });
    let (outgoing, feed) = upload(None);
    let asking = within(group.fetch(outgoing));
    let feeding = async {
        feed.send(Ok(data("one"))).await.unwrap();
    };
    let (answer, ()) = tokio::join!(asking, feeding);
    let mut answer = answer.unwrap();
    let first = within(answer.body.frame()).await;
    assert!(matches!(first, Some(Ok(Frame::Data(data))) if data == "one"));
    feed.send(Ok(data("two"))).await.unwrap();
    let mut trailers = FieldsBuf::new();
    trailers.push("X-Sum", "6");
    feed.send(Ok(Frame::Trailers(trailers))).await.unwrap();
    drop(feed);
    let rest = read(answer).await;
    assert_eq!(rest.body, "two");
    let trailers = rest.end.unwrap().expect("trailers");
    assert_eq!(trailers.fields().as_block(), b"x-sum: 6\r\n");
    assert_eq!(group.snapshot().active, 0);
}

#[tokio::test]
async fn answers_without_content_have_none() {
    let origin = Origin::start().await;
    let group = origin.http2();
    serve(origin, &Builder::new(), |mut exchange| async move {
        let (status, fields): (u16, &[_]) = match exchange.request.uri().path() {
            "/head" => (200, &[("content-length", "5")]),
            "/same" => (304, &[("content-length", "5"), ("etag", "\"a\"")]),
            "/none" => (204, &[]),
            _ => (200, &[("content-length", "0")]),
        };
        exchange
            .respond
            .send_response(response(status, fields), true)
            .unwrap();
    });
    for (method, target, status, length) in [
        (Method::HEAD, "/head", 200, Some(5)),
        (Method::GET, "/same", 304, Some(5)),
        (Method::GET, "/none", 204, None),
        (Method::GET, "/empty", 200, Some(0)),
    ] {
        let answer = within(group.fetch(request(method, target))).await.unwrap();
        assert_eq!(answer.length, length, "{target}");
        assert!(matches!(answer.body, Body::Empty));
        assert_eq!(read(answer).await, got(status, ""));
    }
    assert_eq!(group.snapshot().servers[0].idle, 1);
}

#[tokio::test]
async fn interim_responses_are_delivered_and_continue_releases_the_body() {
    let origin = Origin::start().await;
    let group = origin.http2();
    serve(origin, &Builder::new(), |mut exchange| async move {
        assert_eq!(exchange.request.headers()["expect"], "100-continue");
        let hints = response(103, &[("link", "</a>")]);
        exchange.respond.send_informational(hints).unwrap();
        exchange
            .respond
            .send_informational(response(100, &[]))
            .unwrap();
        let (content, _) = exchange.content().await.unwrap();
        assert_eq!(content, b"hello");
        exchange.answer(&[], "ok");
    });
    let (mut outgoing, feed) = upload(Some(5));
    outgoing.fields.push("Expect", "100-continue");
    let hints = Interims::default();
    outgoing.interim = Some(hints.clone());
    feed.send(Ok(data("hello"))).await.unwrap();
    assert_eq!(fetch(&group, outgoing).await, Ok(got(200, "ok")));
    let hint = hints.take().expect("a hint");
    assert_eq!(
        (hint.status, hint.fields.fields().as_block()),
        (103, &b"link: </a>\r\n"[..])
    );
    assert!(hints.take().is_none());
}

#[tokio::test]
async fn an_upload_passes_through_windows_of_any_size() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.upload_buffer = 0);
    let mut with = Builder::new();
    with.initial_window_size(100);
    serve(origin, &with, |mut exchange| async move {
        let (content, _) = exchange.content().await.unwrap();
        assert_eq!(content.len(), 40_000);
        assert!(content.iter().all(|&byte| byte == b'x'));
        exchange.answer(&[], "ok");
    });
    let mut whole = post("");
    whole.body = Body::Full(Bytes::from(vec![b'x'; 40_000]));
    assert_eq!(fetch(&group, whole).await, Ok(got(200, "ok")));
    let (outgoing, feed) = upload(None);
    let feeding = async {
        for _ in 0..4 {
            let piece = Frame::Data(Bytes::from(vec![b'x'; 10_000]));
            feed.send(Ok(piece)).await.unwrap();
        }
        drop(feed);
    };
    let (answer, ()) = tokio::join!(fetch(&group, outgoing), feeding);
    assert_eq!(answer, Ok(got(200, "ok")));
}

/// A body that breaks off must never look whole.
#[tokio::test]
async fn a_request_that_breaks_off_is_given_up() {
    for (length, frame) in [
        (Some(3), Ok(data("hi"))),
        (None, Err(BodyError::Disconnected)),
    ] {
        let origin = Origin::start().await;
        let group = origin.http2_with(|settings| settings.upload_buffer = 0);
        let (broke, mut has_broken) = mpsc::channel(1);
        serve(origin, &Builder::new(), move |mut exchange| {
            let broke = broke.clone();
            async move {
                let why = exchange.content().await.expect_err("it is not whole");
                broke.send(why.reason()).await.unwrap();
            }
        });
        let (outgoing, feed) = upload(length);
        feed.send(frame).await.unwrap();
        drop(feed);
        let answer = fetch(&group, outgoing).await;
        assert!(
            matches!(answer, Err(OriginError::RequestBody(_))),
            "{answer:?}"
        );
        assert_eq!(within(has_broken.recv()).await, Some(Some(Reason::CANCEL)));
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_body() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.upload_buffer = 0);
    serve(origin, &Builder::new(), |exchange| async move {
        exchange.answer(&[("content-length", "3")], "big");
    });
    let (outgoing, feed) = upload(None);
    feed.send(Ok(data("begin"))).await.unwrap();
    assert_eq!(fetch(&group, outgoing).await, Ok(got(200, "big")));
    assert!(feed.is_closed(), "nobody waits for the rest");
}

#[tokio::test]
async fn a_slow_client_delays_its_own_response_only() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let sent = Arc::new(Mutex::new(0));
    let stuck = Arc::new(Notify::new());
    let (counted, is_stuck) = (Arc::clone(&sent), Arc::clone(&stuck));
    let seen = serve(origin, &Builder::new(), move |mut exchange| {
        let (sent, stuck) = (Arc::clone(&counted), Arc::clone(&is_stuck));
        async move {
            if exchange.request.uri().path() != "/large" {
                exchange.answer(&[], "ok");
                return;
            }
            let mut stream = exchange
                .respond
                .send_response(response(200, &[]), false)
                .unwrap();
            while *sent.lock() < 8_000_000 {
                stream.reserve_capacity(16_000);
                let mut pending = false;
                let room = poll_fn(|cx| {
                    let room = stream.poll_capacity(cx);
                    if room.is_pending() && !std::mem::replace(&mut pending, true) {
                        stuck.notify_one();
                    }
                    room
                });
                let room = room.await.expect("it is open").expect("it goes on");
                stream
                    .send_data(Bytes::from(vec![b'x'; room]), false)
                    .unwrap();
                *sent.lock() += room;
            }
            stream.send_data(Bytes::new(), true).unwrap();
        }
    });
    let mut large = within(group.fetch(request(Method::GET, "/large")))
        .await
        .unwrap();
    // Other requests are answered on the same connection while this body is not read.
    for _ in 0..200 {
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
    }
    within(stuck.notified()).await;
    assert!(*sent.lock() <= 256 * 1024 + 16_000, "{} bytes", sent.lock());
    assert_eq!(seen.connections.load(Ordering::Relaxed), 1);
    let mut received = 0;
    while let Some(frame) = within(large.body.frame()).await {
        let Ok(Frame::Data(data)) = frame else {
            panic!("{frame:?}");
        };
        received += data.len();
        // A download does not keep others waiting.
        assert_eq!(group.snapshot().active, usize::from(received <= 1 << 20));
    }
    assert!(received >= 8_000_000);
}
