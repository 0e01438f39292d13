//! Servers that are shutting down, refuse, break off, lie, or say nothing.

use super::frames::*;
use super::*;
use crate::upstream::HealthCheck;
use crate::upstream::tests::uploads::{data, upload};

const REFUSED_STREAM: u32 = 7;
const HTTP_1_1_REQUIRED: u32 = 13;

type PendingResponse = tokio::task::JoinHandle<Result<Got, OriginError>>;

fn spawn(group: &Arc<Group>, request: OriginRequest) -> PendingResponse {
    let group = Arc::clone(group);
    tokio::spawn(async move { fetch(&group, request).await })
}

/// Waits for a request that was started earlier.
async fn came(of: PendingResponse) -> Result<Got, OriginError> {
    within(of).await.unwrap()
}

/// A server that is asked for this, and has taken the connection for it.
async fn begun(request: OriginRequest) -> (Origin, Arc<Group>, PendingResponse, Frames) {
    let origin = Origin::start().await;
    let group = origin.http2();
    let outgoing = spawn(&group, request);
    let peer = Frames::accept(&origin).await;
    (origin, group, outgoing, peer)
}

/// One GET, and what the server does with its stream.
async fn check(
    expected: Result<Got, OriginError>,
    serve: impl AsyncFnOnce(&mut Frames, u32),
) -> Frames {
    let origin = Origin::start().await;
    let group = origin.http2();
    let serving = async {
        let mut peer = Frames::accept(&origin).await;
        let stream = peer.request().await;
        serve(&mut peer, stream).await;
        peer
    };
    let (answer, peer) = tokio::join!(get(&group), serving);
    assert_eq!(answer, expected);
    assert!(!origin.is_called().await, "it was asked twice");
    let snapshot = group.snapshot();
    assert_eq!(
        (snapshot.active, snapshot.servers[0].health.outstanding),
        (0, 0)
    );
    peer
}

fn cut(body: &str, end: BodyError) -> Got {
    Got {
        end: Err(end),
        ..got(200, body)
    }
}

const RULES: &str = "it breaks the rules of HTTP/2";

#[tokio::test]
async fn requests_above_the_last_stream_of_goaway_are_sent_elsewhere() {
    let (origin, group, first, mut peer) = begun(request(Method::GET, "/")).await;
    assert_eq!(peer.request().await, 1);
    // Not even a POST is lost.
    let second = spawn(&group, post("content"));
    assert_eq!(peer.request().await, 3);
    peer.send(GOAWAY, 0, 0, &goaway(1, 0)).await;
    let mut next = Frames::accept(&origin).await;
    let stream = next.request().await;
    assert_eq!(next.until(DATA).await.payload, b"content");
    next.answer(stream, "second").await;
    assert_eq!(came(second).await, Ok(got(200, "second")));
    // What it did begin goes on there.
    peer.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    assert!(peer.is_left().await);
    assert_eq!(group.snapshot().servers[0].health.failures, 0);
}

/// A connection that was answered on once, and then idle for two seconds.
async fn idle() -> (Origin, Arc<Group>, Frames) {
    let (origin, group, first, mut peer) = begun(request(Method::GET, "/")).await;
    peer.request().await;
    peer.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    (origin, group, peer)
}

#[tokio::test]
async fn an_idle_connection_carries_a_post_once_it_has_answered_again() {
    let (origin, group, mut peer) = idle().await;
    let page = spawn(&group, request(Method::GET, "/"));
    assert_eq!(peer.request().await, 3);
    let first = spawn(&group, post("first"));
    let mut other = Frames::accept(&origin).await;
    other.request().await;
    peer.answer(3, "page").await;
    assert_eq!(came(page).await, Ok(got(200, "page")));
    let second = spawn(&group, post("second"));
    assert_eq!(peer.request().await, 5);
    peer.answer(5, "second").await;
    other.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    assert_eq!(came(second).await, Ok(got(200, "second")));
}

#[tokio::test]
async fn an_abandoned_request_does_not_prove_an_idle_connection_alive() {
    let (origin, group, mut peer) = idle().await;
    let given_up = spawn(&group, request(Method::GET, "/"));
    assert_eq!(peer.request().await, 3);
    given_up.abort();
    assert_eq!(peer.until(RST_STREAM).await.stream, 3);
    let outgoing = spawn(&group, post("content"));
    let mut other = Frames::accept(&origin).await;
    let stream = other.request().await;
    other.answer(stream, "other").await;
    assert_eq!(came(outgoing).await, Ok(got(200, "other")));
}

#[tokio::test]
async fn a_connection_that_closes_takes_no_more_requests() {
    let (origin, group, first, mut peer) = begun(request(Method::GET, "/")).await;
    assert_eq!(peer.request().await, 1);
    peer.send(GOAWAY, 0, 0, &goaway(u32::MAX >> 1, 0)).await;
    peer.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    let second = spawn(&group, post("content"));
    let mut next = Frames::accept(&origin).await;
    next.request().await;
    next.answer(1, "second").await;
    assert_eq!(came(second).await, Ok(got(200, "second")));
    assert!(peer.is_left().await);
}

#[tokio::test]
async fn a_refused_stream_is_retried_once() {
    let (origin, _group, outgoing, mut peer) = begun(post("content")).await;
    let stream = peer.request().await;
    let refused = REFUSED_STREAM.to_be_bytes();
    peer.send(RST_STREAM, 0, stream, &refused).await;
    let mut next = Frames::accept(&origin).await;
    let stream = next.request().await;
    next.answer(stream, "taken").await;
    assert_eq!(came(outgoing).await, Ok(got(200, "taken")));
}

#[tokio::test]
async fn a_request_refused_twice_goes_to_another_server() {
    let (origin, other) = (Origin::start().await, Origin::start().await);
    let mut second = other.server();
    second.backup = true;
    let group = origin.http2_with(|settings| settings.servers.push(second));
    let outgoing = spawn(&group, post("content"));
    let refused = REFUSED_STREAM.to_be_bytes();
    let mut peers = Vec::new();
    for _ in 0..2 {
        let mut peer = Frames::accept(&origin).await;
        let stream = peer.request().await;
        peer.send(RST_STREAM, 0, stream, &refused).await;
        peers.push(peer);
    }
    let mut peer = Frames::accept(&other).await;
    let stream = peer.request().await;
    peer.answer(stream, "taken").await;
    assert_eq!(came(outgoing).await, Ok(got(200, "taken")));
    assert_eq!(group.snapshot().servers[0].health.failures, 1);
}

#[tokio::test]
async fn requests_on_a_broken_connection_are_retried_if_idempotent() {
    for (again, repeatable) in [(request(Method::GET, "/"), true), (post("content"), false)] {
        let origin = Origin::start().await;
        let group = origin.http2();
        let first = spawn(&group, request(Method::GET, "/"));
        let mut peer = Frames::accept(&origin).await;
        peer.request().await;
        peer.answer(1, "first").await;
        assert_eq!(came(first).await, Ok(got(200, "first")));
        let second = spawn(&group, again);
        assert_eq!(peer.request().await, 3);
        drop(peer);
        if repeatable {
            let mut next = Frames::accept(&origin).await;
            next.request().await;
            next.answer(1, "second").await;
            assert_eq!(came(second).await, Ok(got(200, "second")));
        } else {
            assert_eq!(came(second).await, Err(OriginError::Disconnected));
            assert!(!origin.is_called().await);
        }
    }
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_not_tried_twice() {
    check(Err(OriginError::Disconnected), async |peer, _| {
        peer.close().await;
    })
    .await;
    let internal_error = 2_u32.to_be_bytes();
    check(Err(OriginError::Disconnected), async |peer, stream| {
        peer.send(RST_STREAM, 0, stream, &internal_error).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_known_to_be_closed_is_passed_over() {
    let (origin, group, first, mut peer) = begun(request(Method::GET, "/")).await;
    peer.request().await;
    peer.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    drop(peer);
    // It would be lost on the connection that is no more.
    let second = spawn(&group, post("content"));
    let mut next = Frames::accept(&origin).await;
    next.request().await;
    next.answer(1, "second").await;
    assert_eq!(came(second).await, Ok(got(200, "second")));
}

#[tokio::test]
async fn concurrent_requests_avoid_a_connection_known_to_be_closed() {
    let (origin, group, first, mut peer) = begun(request(Method::GET, "/")).await;
    peer.request().await;
    peer.answer(1, "first").await;
    assert_eq!(came(first).await, Ok(got(200, "first")));
    drop(peer);
    let all =
        [request(Method::GET, "/"), post("a"), post("b")].map(|outgoing| spawn(&group, outgoing));
    let mut next = Frames::accept(&origin).await;
    for _ in &all {
        let stream = next.request().await;
        next.answer(stream, "ok").await;
    }
    for outgoing in all {
        assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
    }
}

/// RFC 9113 §8.1: with a reset a server may ask not to be sent the rest of what it has answered already.
#[tokio::test]
async fn a_response_complete_before_its_reset_is_whole() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.upload_buffer = 0);
    let (outgoing, feed) = upload(None);
    feed.send(Ok(data("begin"))).await.unwrap();
    let outgoing = spawn(&group, outgoing);
    let mut peer = Frames::accept(&origin).await;
    let stream = peer.request().await;
    let head = block(&[(":status", "200")]);
    let mut frames = Frames::frame(HEADERS, END_HEADERS, stream, &head);
    frames.extend(Frames::frame(DATA, END_STREAM, stream, b"whole"));
    frames.extend(Frames::frame(RST_STREAM, 0, stream, &[0; 4]));
    peer.write(&frames).await;
    assert_eq!(came(outgoing).await, Ok(got(200, "whole")));
    assert!(feed.is_closed(), "nobody waits for the rest");
    assert_eq!(group.snapshot().servers[0].health.failures, 0);
}

/// Whatever reason it gives, what is reset is not whole.
#[tokio::test]
async fn an_answer_that_is_reset_is_broken() {
    for reason in [0_u32, 2, 8, REFUSED_STREAM] {
        check(
            Ok(cut("begin", BodyError::Reset(reason))),
            async |peer, stream| {
                let head = block(&[(":status", "200")]);
                peer.send(HEADERS, END_HEADERS, stream, &head).await;
                peer.send(DATA, 0, stream, b"begin").await;
                peer.settle().await;
                peer.send(RST_STREAM, 0, stream, &reason.to_be_bytes())
                    .await;
            },
        )
        .await;
    }
    check(
        Ok(cut("begin", BodyError::Disconnected)),
        async |peer, stream| {
            let head = block(&[(":status", "200")]);
            peer.send(HEADERS, END_HEADERS, stream, &head).await;
            peer.send(DATA, 0, stream, b"begin").await;
            peer.settle().await;
            peer.close().await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_wrong_length_is_refused() {
    for sent in ["four", "sixsix"] {
        let origin = Origin::start().await;
        let group = origin.http2();
        let outgoing = spawn(&group, request(Method::GET, "/"));
        let mut peer = Frames::accept(&origin).await;
        let stream = peer.request().await;
        let head = block(&[(":status", "200"), ("content-length", "5")]);
        peer.send(HEADERS, END_HEADERS, stream, &head).await;
        peer.send(DATA, END_STREAM, stream, sent.as_bytes()).await;
        match came(outgoing).await {
            Ok(answer) => assert!(answer.end.is_err(), "{answer:?}"),
            Err(error) => assert_eq!(error, OriginError::Malformed(RULES)),
        }
        // The connection is none the worse for it.
        let outgoing = spawn(&group, request(Method::GET, "/"));
        assert_eq!(peer.request().await, 3);
        peer.answer(3, "ok").await;
        assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
    }
}

#[tokio::test]
async fn a_body_where_none_is_allowed_is_refused() {
    check(
        Err(OriginError::Malformed("bytes after its end")),
        async |peer, stream| {
            let head = block(&[(":status", "204")]);
            let mut frames = Frames::frame(HEADERS, END_HEADERS, stream, &head);
            frames.extend(Frames::frame(DATA, END_STREAM, stream, b"evil"));
            peer.write(&frames).await;
        },
    )
    .await;
    let malformed = Err(OriginError::Malformed("white space around a field value"));
    check(malformed, async |peer, stream| {
        let head = block(&[(":status", "204")]);
        let mut frames = Frames::frame(HEADERS, END_HEADERS, stream, &head);
        let trailers = block(&[("x-sum", "2 ")]);
        let end = END_HEADERS | END_STREAM;
        frames.extend(Frames::frame(HEADERS, end, stream, &trailers));
        peer.write(&frames).await;
    })
    .await;
}

#[tokio::test]
async fn a_head_that_could_be_taken_for_another_in_http1_is_refused() {
    for fields in [
        &[(":status", "200"), ("X-Upper", "1")][..],
        &[(":status", "200"), ("a", "b\r\nset-cookie: c=d")],
        &[(":status", "200"), ("a", "b\nc")],
        &[(":status", "200"), ("a", "b\0")],
        &[(":status", "200"), ("a b", "c")],
        &[(":status", "200"), ("a:", "b")],
        &[(":status", "200"), ("", "b")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("transfer-encoding", "chunked")],
        &[(":status", "200"), ("a", "b"), (":status", "200")],
        &[(":status", "101")],
        &[(":status", "20")],
        &[("a", "b")],
        &[(":status", "200"), ("a", " b")],
        &[
            (":status", "200"),
            ("content-length", "1"),
            ("content-length", "2"),
        ],
        &[
            (":status", "200"),
            ("content-length", "1"),
            ("content-length", "1"),
        ],
        &[(":status", "200"), ("content-length", "0x1")],
    ] {
        let origin = Origin::start().await;
        let group = origin.http2();
        let outgoing = spawn(&group, request(Method::GET, "/"));
        let mut peer = Frames::accept(&origin).await;
        let stream = peer.request().await;
        peer.send(HEADERS, END_HEADERS, stream, &block(fields))
            .await;
        let answer = came(outgoing).await;
        assert!(
            matches!(answer, Err(OriginError::Malformed(_))),
            "{fields:?}: {answer:?}"
        );
        assert!(!origin.is_called().await, "it was asked twice: {fields:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_others_go_on() {
    let (_origin, group, outgoing, mut peer) = begun(request(Method::GET, "/")).await;
    assert_eq!(peer.request().await, 1);
    let other = spawn(&group, request(Method::GET, "/other"));
    assert_eq!(peer.request().await, 3);
    // A field of 4 KB enters the table (RFC 7541 §6.2.1), and is named eighty times by a byte.
    let mut large = block(&[(":status", "200")]);
    large.extend([0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    large.extend([b'x'; 4000]);
    large.extend([0xbe; 80]);
    peer.send(HEADERS, END_HEADERS | END_STREAM, 1, &large)
        .await;
    assert_eq!(came(outgoing).await, Err(OriginError::Malformed(RULES)));
    peer.answer(3, "other").await;
    assert_eq!(came(other).await, Ok(got(200, "other")));
}

#[tokio::test]
async fn interim_responses_have_a_bound() {
    let too_many = Err(OriginError::Malformed("too many interim responses"));
    check(too_many, async |peer, stream| {
        let hint = Frames::frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "103")]));
        peer.write(&hint.repeat(40)).await;
    })
    .await;
}

#[tokio::test]
async fn a_server_without_http2_fails_to_connect() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let outgoing = spawn(&group, request(Method::GET, "/"));
    let mut peer = origin.accept().await;
    peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .await;
    let Err(OriginError::Connect(why)) = came(outgoing).await else {
        panic!("it should not be an answer");
    };
    assert!(why.starts_with("no HTTP/2 session: "), "{why}");
}

#[tokio::test]
async fn waiters_for_a_failing_connection_fail_with_it() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.connect_timeout = Duration::from_millis(200));
    let outgoing: Vec<_> = (0..20)
        .map(|_| spawn(&group, request(Method::GET, "/")))
        .collect();
    let peer = Frames::silent(&origin).await;
    for outgoing in outgoing {
        let late = OriginError::Connect("no answer within 200ms".into());
        assert_eq!(came(outgoing).await, Err(late));
    }
    assert!(
        !origin.is_called().await,
        "one connection was tried for all of them"
    );
    assert_eq!(group.snapshot().servers[0].health.failures, 1);
    drop(peer);
}

#[tokio::test]
async fn an_abandoned_connection_attempt_is_left_to_the_next_request() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let first = spawn(&group, request(Method::GET, "/"));
    let _silent = Frames::silent(&origin).await;
    let second = spawn(&group, request(Method::GET, "/"));
    while group.snapshot().active < 2 {
        tokio::task::yield_now().await;
    }
    first.abort();
    let mut peer = Frames::accept(&origin).await;
    let stream = peer.request().await;
    peer.answer(stream, "second").await;
    assert_eq!(came(second).await, Ok(got(200, "second")));
}

#[tokio::test]
async fn a_server_that_is_silent_gets_no_more_on_that_connection() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| {
        settings.first_byte_timeout = Duration::from_millis(100);
        settings.between_bytes_timeout = Duration::from_millis(100);
    });
    let outgoing = spawn(&group, request(Method::GET, "/"));
    let mut peer = Frames::accept(&origin).await;
    assert_eq!(peer.request().await, 1);
    assert_eq!(came(outgoing).await, Err(OriginError::Timeout));
    assert_eq!(peer.until(RST_STREAM).await.stream, 1);
    let outgoing = spawn(&group, request(Method::GET, "/"));
    let mut next = Frames::accept(&origin).await;
    let stream = next.request().await;
    let head = block(&[(":status", "200")]);
    next.send(HEADERS, END_HEADERS, stream, &head).await;
    next.send(DATA, 0, stream, b"begin").await;
    let stalled = cut("begin", BodyError::Timeout);
    assert_eq!(came(outgoing).await, Ok(stalled));
}

#[tokio::test]
async fn giving_a_request_up_resets_its_stream_and_the_connection_continues() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.max_concurrent = 2);
    let given_up = spawn(&group, request(Method::GET, "/"));
    let mut peer = Frames::accept(&origin).await;
    assert_eq!(peer.request().await, 1);
    let kept = spawn(&group, request(Method::GET, "/"));
    assert_eq!(peer.request().await, 3);
    given_up.abort();
    let reset = peer.until(RST_STREAM).await;
    assert_eq!(
        (reset.stream, reset.payload),
        (1, 8_u32.to_be_bytes().to_vec())
    );
    // Frames in flight at that time belong to no request.
    peer.answer(1, "late").await;
    peer.answer(3, "kept").await;
    assert_eq!(came(kept).await, Ok(got(200, "kept")));
    let next = spawn(&group, request(Method::GET, "/"));
    assert_eq!(peer.request().await, 5);
    peer.answer(5, "next").await;
    assert_eq!(came(next).await, Ok(got(200, "next")));
    assert_eq!(group.snapshot().active, 0);
}

/// Servers close a connection on which too much is reset, and nothing else on it is answered then.
#[tokio::test]
async fn a_connection_on_which_many_were_given_up_takes_no_more_and_the_others_go_on() {
    let (origin, group, kept, mut peer) = begun(post("content")).await;
    assert_eq!(peer.request().await, 1);
    for _ in 0..100 {
        let given_up = spawn(&group, request(Method::GET, "/"));
        let stream = peer.request().await;
        given_up.abort();
        assert_eq!(peer.until(RST_STREAM).await.stream, stream);
    }
    let next = spawn(&group, request(Method::GET, "/"));
    let mut other = Frames::accept(&origin).await;
    let stream = other.request().await;
    other.answer(stream, "next").await;
    assert_eq!(came(next).await, Ok(got(200, "next")));
    peer.answer(1, "kept").await;
    assert_eq!(came(kept).await, Ok(got(200, "kept")));
    assert!(peer.is_left().await);
}

/// A known length ends the body, and many servers send `END_STREAM` a moment later.
#[tokio::test]
async fn a_response_that_ends_by_itself_is_not_reset() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let mut outgoing = spawn(&group, request(Method::GET, "/"));
    let mut peer = Frames::accept(&origin).await;
    let whole = block(&[(":status", "200"), ("content-length", "2")]);
    let nothing = block(&[(":status", "204")]);
    let trailers = block(&[("x-sum", "1")]);
    for (head, content, (end, flags, last)) in [
        (&whole, "ok", (DATA, END_STREAM, &[][..])),
        (&whole, "ok", (HEADERS, END_STREAM | END_HEADERS, &trailers)),
        (&nothing, "", (DATA, END_STREAM, &[])),
    ] {
        let stream = peer.request_and_no_reset().await;
        peer.send(HEADERS, END_HEADERS, stream, head).await;
        if !content.is_empty() {
            peer.send(DATA, 0, stream, content.as_bytes()).await;
        }
        let answer = came(outgoing).await.expect("an answer");
        assert_eq!((&*answer.body, answer.end), (content, Ok(None)));
        assert_eq!(group.snapshot().active, 0);
        outgoing = spawn(&group, request(Method::GET, "/"));
        peer.send(end, flags, stream, last).await;
    }
    // The wait is bounded.
    let stream = peer.request_and_no_reset().await;
    peer.send(HEADERS, END_HEADERS, stream, &nothing).await;
    assert_eq!(came(outgoing).await, Ok(got(204, "")));
    assert_eq!(peer.until(RST_STREAM).await.stream, stream);
}

#[tokio::test]
async fn a_client_that_breaks_off_within_its_answer_is_not_the_servers_fault() {
    let origin = Origin::start().await;
    let (group, logged) = origin.group_and_log(|settings| {
        settings.http2 = true;
        settings.upload_buffer = 0;
    });
    let (outgoing, feed) = upload(None);
    feed.send(Ok(data("one"))).await.unwrap();
    let outgoing = spawn(&group, outgoing);
    let mut peer = Frames::accept(&origin).await;
    let stream = peer.request().await;
    let head = block(&[(":status", "200")]);
    peer.send(HEADERS, END_HEADERS, stream, &head).await;
    peer.send(DATA, 0, stream, b"begin").await;
    peer.settle().await;
    feed.send(Err(BodyError::Disconnected)).await.unwrap();
    let broken = cut("begin", BodyError::Disconnected);
    assert_eq!(came(outgoing).await, Ok(broken));
    assert_eq!(peer.until(RST_STREAM).await.stream, stream);
    assert_eq!(*logged.lock(), [""; 0]);
}

#[tokio::test]
async fn unused_connections_are_closed_in_time_and_with_their_group() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| settings.idle_timeout = Duration::from_millis(50));
    let outgoing = spawn(&group, request(Method::GET, "/"));
    let mut peer = Frames::accept(&origin).await;
    peer.request().await;
    peer.answer(1, "ok").await;
    assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
    assert!(peer.is_left().await);
    assert_eq!(group.snapshot().servers[0].idle, 0);
    let group = origin.http2();
    let outgoing = spawn(&group, request(Method::GET, "/"));
    let mut peer = Frames::accept(&origin).await;
    peer.request().await;
    group.retire();
    peer.answer(1, "ok").await;
    assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
    assert!(peer.is_left().await);
}

#[tokio::test]
async fn upgrades_and_http1_requests_use_http1() {
    let origin = Origin::start().await;
    let group = origin.http2();
    let mut upgrade = request(Method::GET, "/");
    upgrade.upgrade = true;
    upgrade.fields.push("Upgrade", "echo");
    let outgoing = spawn(&group, upgrade);
    let mut peer = origin.accept().await;
    assert!(peer.head().await.contains("\r\nUpgrade: echo\r\n"));
    peer.send(OK).await;
    assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
    let outgoing = spawn(&group, post("content"));
    let mut frames = Frames::accept(&origin).await;
    let stream = frames.request().await;
    let wants = HTTP_1_1_REQUIRED.to_be_bytes();
    frames.send(RST_STREAM, 0, stream, &wants).await;
    assert!(
        peer.until("content")
            .await
            .starts_with("POST / HTTP/1.1\r\n")
    );
    peer.send(OK).await;
    assert_eq!(came(outgoing).await, Ok(got(200, "ok")));
}

#[tokio::test]
async fn health_checks_use_the_protocol_of_the_server() {
    let origin = Origin::start().await;
    let group = origin.http2_with(|settings| {
        settings.health = Some(HealthCheck {
            interval: Duration::from_millis(10),
            timeout: HANG,
            fall: 1,
            rise: 1,
            ..HealthCheck::default()
        });
    });
    let up = || group.snapshot().servers[0].health.up;
    for (status, before) in [("503", true), ("200", false), ("200", true)] {
        let mut peer = Frames::accept(&origin).await;
        assert_eq!(up(), before);
        let stream = peer.request().await;
        let head = block(&[(":status", status)]);
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &head)
            .await;
    }
}
