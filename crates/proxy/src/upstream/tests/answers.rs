//! Responses of servers: valid, malformed, and missing.

use std::future::poll_fn;

use super::*;
use microcache_engine::Interims;
use tokio::sync::mpsc;

/// One answer, sent to a GET on a new connection that is closed after it.
async fn check(sent: &str, expected: Result<Got, OriginError>) {
    let origin = Origin::start().await;
    let group = origin.group();
    let serving = async { drop(origin.serve(sent).await) };
    let (answer, ()) = tokio::join!(get(&group), serving);
    assert_eq!(answer, expected, "{sent:?}");
    assert!(!origin.is_called().await, "it was asked twice: {sent:?}");
}

fn cut(status: u16, body: &str, end: BodyError) -> Got {
    Got {
        end: Err(end),
        ..got(status, body)
    }
}

#[tokio::test]
async fn every_framing_is_read() {
    for (sent, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "hello"),
        ("HTTP/1.0 200 OK\r\n\r\nhello", "hello"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            "hello",
        ),
    ] {
        check(sent, Ok(got(200, body))).await;
    }
    check("HTTP/1.1 204 None\r\n\r\n", Ok(got(204, ""))).await;
    check(
        "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n",
        Ok(got(304, "")),
    )
    .await;
}

#[tokio::test]
async fn bodies_that_end_too_early_say_so() {
    for (sent, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "hel"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", ""),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "hel",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
            "hel",
        ),
    ] {
        check(sent, Ok(cut(200, body, BodyError::Incomplete))).await;
    }
}

#[tokio::test]
async fn responses_that_are_not_http_are_malformed() {
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(280_000));
    for sent in [
        "SSH-2.0-OpenSSH_9\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        &endless,
        &"HTTP/1.1 102 Processing\r\n\r\n".repeat(40),
    ] {
        let origin = Origin::start().await;
        let group = origin.group();
        let (answer, mut peer) = tokio::join!(get(&group), origin.serve(sent));
        let malformed = matches!(answer, Err(OriginError::Malformed(_)));
        assert!(malformed, "{sent:?}: {answer:?}");
        assert!(peer.is_closed().await);
    }
    let broken = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n";
    let end = BodyError::Malformed("a chunk without a size");
    check(broken, Ok(cut(200, "ok", end))).await;
}

#[tokio::test]
async fn a_close_instead_of_a_response_is_not_retried() {
    check("", Err(OriginError::Disconnected)).await;
    check(
        "HTTP/1.1 200 OK\r\nContent-",
        Err(OriginError::Disconnected),
    )
    .await;
}

#[tokio::test]
async fn silence_ends() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.first_byte_timeout = Duration::from_millis(20);
        settings.between_bytes_timeout = Duration::from_millis(20);
    });
    for (sent, expected) in [
        ("", Err(OriginError::Timeout)),
        ("HTTP/1.1 200", Err(OriginError::Timeout)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
            Ok(cut(200, "hel", BodyError::Timeout)),
        ),
    ] {
        let (answer, mut peer) = tokio::join!(get(&group), origin.serve(sent));
        assert_eq!(answer, expected);
        assert!(peer.is_closed().await);
    }
}

#[tokio::test]
async fn an_answer_to_head_has_a_length_and_no_body() {
    let origin = Origin::start().await;
    let group = origin.group();
    let serving = async {
        let mut peer = origin
            .serve("HTTP/1.1 200 OK\r\nContent-Length: 500\r\nTrailer: x\r\nKeep-Alive: timeout=5\r\nX: 1\r\n\r\n")
            .await;
        assert!(peer.head().await.starts_with("GET /"));
        peer.send(OK).await;
    };
    let asking = async {
        let head = within(group.fetch(request(Method::HEAD, "/")))
            .await
            .unwrap();
        assert_eq!(head.length, Some(500));
        let fields = head.fields.fields();
        assert_eq!(fields.get("x"), Some(&b"1"[..]));
        assert!(!fields.contains("content-length") && !fields.contains("keep-alive"));
        assert_eq!(read(head).await, got(200, ""));
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn frames_come_as_they_are_sent_and_trailers_last() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (go_on, mut went_on) = mpsc::channel::<()>(1);
    let serving = async {
        let mut peer = origin
            .serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            .await;
        within(went_on.recv()).await.unwrap();
        peer.send("1\r\nb\r\n0\r\nX-Sum: 2\r\nHost: evil\r\n\r\n")
            .await;
        peer
    };
    let asking = async {
        let mut response = within(group.fetch(request(Method::GET, "/")))
            .await
            .unwrap();
        let first = within(response.body.frame()).await;
        assert!(matches!(first, Some(Ok(Frame::Data(data))) if data == "a"));
        go_on.send(()).await.unwrap();
        let rest = read(response).await;
        assert_eq!(rest.body, "b");
        let trailers = rest.end.unwrap().expect("trailers");
        assert_eq!(trailers.fields().as_block(), b"X-Sum: 2\r\n");
        assert_eq!(group.snapshot().servers[0].idle, 1);
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn interim_responses_reach_requests_that_want_them() {
    let origin = Origin::start().await;
    let group = origin.group();
    let answer = "HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n\
        HTTP/1.1 102 Processing\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let hints = Interims::default();
    let mut outgoing = request(Method::GET, "/");
    outgoing.interim = Some(hints.clone());
    let (answer, _) = tokio::join!(fetch(&group, outgoing), origin.serve(answer));
    assert_eq!(answer, Ok(got(200, "ok")));
    let hint = poll_fn(|cx| hints.poll_next(cx)).await;
    assert_eq!(hint.status, 103);
    assert_eq!(hint.fields.fields().as_block(), b"Link: </a>\r\n");
    let processing = poll_fn(|cx| hints.poll_next(cx)).await;
    assert_eq!(processing.status, 102);
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel_and_gives_its_place_back() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.max_concurrent = 1);
    let mut outgoing = request(Method::GET, "/");
    outgoing.upgrade = true;
    outgoing.fields.push("Upgrade", "echo");
    let serving = async {
        let mut peer = origin.accept().await;
        assert!(peer.head().await.contains("\r\nConnection: upgrade\r\n"));
        peer.send("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly")
            .await;
        assert_eq!(peer.until("ping").await, "ping");
        peer.send("pong").await;
        // The place is free although the tunnel is open.
        origin.serve(OK).await;
        peer
    };
    let asking = async {
        let response = within(group.fetch(outgoing)).await.unwrap();
        assert_eq!(response.status, 101);
        assert_eq!(response.fields.fields().get("upgrade"), Some(&b"echo"[..]));
        let tunnel = response.tunnel.expect("a tunnel");
        assert_eq!(tunnel.early, "early");
        let mut io = tunnel.io;
        io.write_all(b"ping").await.unwrap();
        let mut answer = [0; 4];
        within(io.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"pong");
        assert_eq!(group.snapshot().active, 0);
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn an_upgrade_may_be_declined() {
    let origin = Origin::start().await;
    let group = origin.group();
    let mut outgoing = request(Method::GET, "/");
    outgoing.upgrade = true;
    outgoing.fields.push("Upgrade", "echo");
    let (answer, _) = tokio::join!(fetch(&group, outgoing), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn an_event_stream_gives_its_place_back_and_may_be_silent() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.max_concurrent = 1;
        settings.between_bytes_timeout = Duration::from_millis(1);
    });
    let serving = async {
        let mut stream = origin
            .serve("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n")
            .await;
        origin.serve(OK).await;
        stream.send("data: 1\n\n").await;
        stream
    };
    let asking = async {
        let mut events = within(group.fetch(request(Method::GET, "/")))
            .await
            .unwrap();
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
        let event = within(events.body.frame()).await;
        assert!(matches!(event, Some(Ok(Frame::Data(data))) if data == "data: 1\n\n"));
    };
    tokio::join!(asking, serving);
}
