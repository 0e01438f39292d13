//! Reuse of connections, and the cases that forbid it.

use super::uploads::tls;
use super::*;
use crate::upstream::settings::OriginProtocol;

const SECOND: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond";

#[tokio::test]
async fn connections_are_used_again() {
    let origin = Origin::start().await;
    let group = origin.group();
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let serving = async {
        let mut peer = origin.accept().await;
        for answer in [OK, chunked, OK] {
            peer.head().await;
            peer.send(answer).await;
        }
        peer
    };
    let asking = async {
        for _ in 0..3 {
            assert_eq!(get(&group).await, Ok(got(200, "ok")));
            assert_eq!(group.snapshot().servers[0].idle, 1);
        }
    };
    tokio::join!(asking, serving);
    assert!(!origin.is_called().await);
    assert_eq!(group.snapshot().servers[0].health.requests, 3);
}

/// After this first answer, the next request comes on a new connection.
async fn check_used_once(first: &str, body: &str, change: impl FnOnce(&mut GroupSettings)) {
    let origin = Origin::start().await;
    let group = origin.group_with(change);
    let serving = async {
        let mut peer = origin.serve(first).await;
        let next = origin.serve(SECOND).await;
        assert!(peer.is_closed().await, "{first:?}");
        next
    };
    let asking = async {
        assert_eq!(get(&group).await, Ok(got(200, body)), "{first:?}");
        assert_eq!(group.snapshot().active, 0);
        assert_eq!(get(&group).await, Ok(got(200, "second")), "{first:?}");
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn a_connection_that_is_not_to_be_kept_is_used_once() {
    for first in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ] {
        check_used_once(first, "ok", |_| {}).await;
    }
    check_used_once(OK, "ok", |settings| settings.max_idle = 0).await;
    check_used_once(OK, "ok", |settings| settings.idle_timeout = Duration::ZERO).await;
}

/// Bytes behind the end of an answer: it is refused, and so is its connection.
#[tokio::test]
async fn a_response_followed_by_more_bytes_is_refused() {
    let late = Got {
        end: Err(BodyError::Malformed("bytes after its end")),
        ..got(200, "ok")
    };
    let whole = || Err(OriginError::Malformed("bytes after its end"));
    for (sent, expected) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, then",
            whole(),
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx", whole()),
        ("HTTP/1.1 204 None\r\n\r\nx", whole()),
        ("HTTP/1.1 304 Same\r\nContent-Length: 1\r\n\r\nx", whole()),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            whole(),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\r\n",
            Ok(late),
        ),
    ] {
        let origin = Origin::start().await;
        let group = origin.group();
        let (answer, mut peer) = tokio::join!(get(&group), origin.serve(sent));
        assert_eq!(answer, expected, "{sent:?}");
        assert!(peer.is_closed().await, "{sent:?}");
        assert_eq!(group.snapshot().active, 0);
    }
}

#[tokio::test]
async fn an_unsolicited_response_is_discarded() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (answer, mut peer) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    assert_eq!(group.snapshot().servers[0].idle, 1);
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        .await;
    // The runtime looks at its sockets.
    tokio::task::yield_now().await;
    let (answer, _) = tokio::join!(get(&group), origin.serve(SECOND));
    assert_eq!(answer, Ok(got(200, "second")));
}

/// No response to a HEAD has a body, but some servers send one. Here it is a response as well.
#[tokio::test]
async fn a_body_sent_to_a_head_is_not_the_next_response() {
    let origin = Origin::start().await;
    let group = origin.group();
    let body = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let (answer, peer) = tokio::join!(
        fetch(&group, request(Method::HEAD, "/")),
        origin.serve(&head)
    );
    assert_eq!(answer, Ok(got(200, "")));
    assert_eq!(group.snapshot().servers[0].idle, 1);
    // Before the runtime looks at its sockets.
    let sent = peer.stream.try_write(body.as_bytes());
    assert_eq!(sent.unwrap(), body.len());
    let (answer, _) = tokio::join!(get(&group), origin.serve(SECOND));
    assert_eq!(answer, Ok(got(200, "second")));
}

/// TLS reads ahead: when the response ends, what follows may have left the socket already.
#[tokio::test]
async fn a_tls_record_behind_a_response_is_not_the_next_response() {
    // The largest record, and the room of a new connection's buffer.
    const RECORD: usize = 1 << 14;
    let (acceptor, tls) = tls();
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.servers[0].protocol = OriginProtocol::Https;
        settings.tls = tls;
    });
    let serve = async |response: &str| {
        let (stream, _) = within(origin.listener.accept()).await.unwrap();
        let mut stream = within(acceptor.accept(stream)).await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(within(stream.read_u8()).await.unwrap());
        }
        within(stream.write_all(response.as_bytes())).await.unwrap();
        within(stream.flush()).await.unwrap();
        stream
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 16342\r\n\r\n";
    let body = "x".repeat(RECORD - head.len());
    let response = format!("{head}{body}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    let (answer, _first) = tokio::join!(get(&group), serve(&response));
    assert_eq!(answer, Ok(got(200, &body)));
    assert_eq!(group.snapshot().servers[0].idle, 1);
    let (answer, _second) = tokio::join!(get(&group), serve(SECOND));
    assert_eq!(answer, Ok(got(200, "second")));
}

/// The origin takes a second request on its connection and closes instead of answering.
async fn hang_up_on_the_second(origin: &Origin) {
    let mut peer = origin.serve(OK).await;
    assert!(peer.head().await.contains(" / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_get_that_met_a_closing_connection_is_sent_again() {
    let origin = Origin::start().await;
    let group = origin.group();
    let serving = async {
        hang_up_on_the_second(&origin).await;
        origin.serve(SECOND).await
    };
    let asking = async {
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
        assert_eq!(get(&group).await, Ok(got(200, "second")));
    };
    tokio::join!(asking, serving);
    assert_eq!(group.snapshot().servers[0].health.failures, 0);
}

#[tokio::test]
async fn a_put_with_a_whole_body_is_sent_again_too() {
    let origin = Origin::start().await;
    let group = origin.group();
    let mut put = post("body");
    put.method = Method::PUT;
    let serving = async {
        hang_up_on_the_second(&origin).await;
        let mut peer = origin.accept().await;
        assert!(peer.until("\r\n\r\nbody").await.starts_with("PUT / "));
        peer.send(SECOND).await;
        peer
    };
    let asking = async {
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
        assert_eq!(fetch(&group, put).await, Ok(got(200, "second")));
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn a_post_that_met_a_closing_connection_is_not_sent_again() {
    let origin = Origin::start().await;
    let group = origin.group();
    let asking = async {
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
        assert_eq!(
            fetch(&group, post("x")).await,
            Err(OriginError::Disconnected)
        );
    };
    tokio::join!(asking, hang_up_on_the_second(&origin));
    assert!(!origin.is_called().await);
}

#[tokio::test]
async fn a_connection_known_to_be_closed_is_passed_over() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (answer, peer) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    drop(peer);
    let (answer, _) = tokio::join!(fetch(&group, post("x")), origin.serve(SECOND));
    assert_eq!(answer, Ok(got(200, "second")));
}

#[tokio::test]
async fn a_request_with_a_partial_response_is_not_repeated() {
    let origin = Origin::start().await;
    let group = origin.group();
    let serving = async {
        let mut peer = origin.serve(OK).await;
        peer.head().await;
        peer.send("HTTP/1.1 2").await;
    };
    let asking = async {
        assert_eq!(get(&group).await, Ok(got(200, "ok")));
        assert_eq!(get(&group).await, Err(OriginError::Disconnected));
    };
    tokio::join!(asking, serving);
    assert!(!origin.is_called().await);
}

#[tokio::test]
async fn giving_an_answer_up_closes_its_connection() {
    let origin = Origin::start().await;
    let group = origin.group();
    let serving = async {
        let mut peer = origin
            .serve("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin")
            .await;
        assert!(peer.is_closed().await);
    };
    let asking = async {
        let mut response = within(group.fetch(request(Method::GET, "/")))
            .await
            .unwrap();
        assert!(matches!(within(response.body.frame()).await, Some(Ok(_))));
        assert_eq!(group.snapshot().active, 1);
        drop(response);
        let snapshot = group.snapshot();
        assert_eq!(
            (snapshot.active, snapshot.servers[0].health.outstanding),
            (0, 0)
        );
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn unused_connections_are_closed_in_time() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.idle_timeout = Duration::from_millis(10));
    let (answer, mut peer) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    assert!(peer.is_closed().await);
    assert_eq!(group.snapshot().servers[0].idle, 0);
}

#[tokio::test]
async fn a_connection_stays_with_its_runtime() {
    let origin = Origin::start().await;
    let group = origin.group();
    let (answer, mut peer) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    let elsewhere = Arc::clone(&group);
    let (done, is_done) = tokio::sync::oneshot::channel();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        done.send(runtime.block_on(get(&elsewhere))).unwrap();
    });
    let (answer, _other_peer) = tokio::join!(within(is_done), origin.serve(SECOND));
    assert_eq!(answer.unwrap(), Ok(got(200, "second")));
    other.join().unwrap();
    let serving = async {
        peer.head().await;
        peer.send(OK).await;
    };
    let (answer, ()) = tokio::join!(get(&group), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn stale_connections_do_not_keep_fresh_ones_out() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.max_idle = 1;
        // So long that the sweep, which comes as often, has not come yet.
        settings.idle_timeout = Duration::from_secs(2);
    });
    let (answer, mut stale) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    let mut outgoing = request(Method::POST, "/");
    outgoing.length = Some(0);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    // It is too old by now for what cannot be repeated.
    let serving = async {
        let mut peer = origin.serve(OK).await;
        assert!(stale.is_closed().await, "the older one gives way");
        peer.head().await;
        peer.send(SECOND).await;
    };
    let asking = async {
        assert_eq!(fetch(&group, outgoing).await, Ok(got(200, "ok")));
        assert_eq!(get(&group).await, Ok(got(200, "second")));
    };
    tokio::join!(asking, serving);
    assert!(!origin.is_called().await);
}

/// Every miss allocates one, and moves it.
#[tokio::test]
async fn the_future_of_a_request_is_small() {
    let origin = Origin::start().await;
    let group = origin.group();
    let fetch = group.fetch(request(Method::GET, "/"));
    let size = size_of_val(&*fetch);
    assert!(size <= 1600, "{size}");
}
