//! Groups of several servers, and how much is asked of them at a time.

use tokio::time::{Instant, sleep};

use super::*;
use crate::observe::collected;
use crate::upstream::HealthCheck;

/// A port without a listener.
async fn dead() -> ServerSettings {
    Origin::start().await.server()
}

#[tokio::test]
async fn an_unreachable_server_is_skipped() {
    let origin = Origin::start().await;
    let settings = GroupSettings::new("test", vec![dead().await, origin.server()]);
    let group = Group::start(settings, Notices::default(), &Arc::default());
    let serving = async {
        let mut peer = origin.serve(OK).await;
        for _ in 0..7 {
            peer.head().await;
            peer.send(OK).await;
        }
        peer
    };
    let asking = async {
        for _ in 0..8 {
            // Nothing was sent to the dead one, so even a POST may go to the next.
            assert_eq!(fetch(&group, post("")).await, Ok(got(200, "ok")));
        }
    };
    tokio::join!(asking, serving);
    let servers = group.snapshot().servers;
    assert!(!servers[0].health.up && servers[1].health.up);
    assert_eq!(servers[0].health.failures, 3, "then it was out");
}

#[tokio::test]
async fn with_all_servers_unreachable_each_request_fails() {
    let server = dead().await;
    let address = server.address.clone();
    let (notices, logged) = collected();
    let group = Group::start(
        GroupSettings::new("test", vec![server]),
        notices,
        &Arc::default(),
    );
    for _ in 0..6 {
        let error = get(&group).await.unwrap_err();
        assert!(matches!(error, OriginError::Connect(_)), "{error}");
    }
    assert!(!group.snapshot().servers[0].health.up);
    let refused = format!("origin {address}: cannot connect: Connection refused");
    let down = format!("origin {address} is down after 3 failures in a row");
    let logged = logged.lock().clone();
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert!(
        logged[0].starts_with(&refused) && logged[1].starts_with(&down),
        "{logged:?}"
    );
    let empty = Group::start(
        GroupSettings::new("test", Vec::new()),
        Notices::default(),
        &Arc::default(),
    );
    assert_eq!(get(&empty).await, Err(OriginError::Down));
}

#[tokio::test]
async fn a_server_that_returns_is_found() {
    let origin = Origin::start().await;
    let server = origin.server();
    drop(origin);
    let mut settings = GroupSettings::new("test", vec![server.clone()]);
    settings.fail_limit = 1;
    let group = Group::start(settings, Notices::default(), &Arc::default());
    assert!(get(&group).await.is_err());
    let listener = TcpListener::bind(server.address.to_string()).await.unwrap();
    let origin = Origin { listener };
    let (answer, _) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
    assert!(group.snapshot().servers[0].health.up);
}

#[tokio::test]
async fn the_bound_holds_until_the_body_has_been_read() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.max_concurrent = 1);
    let first = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha";
    let begin = async {
        within(group.fetch(request(Method::GET, "/")))
            .await
            .unwrap()
    };
    let (response, mut peer) = tokio::join!(begin, origin.serve(first));
    let waiting = Arc::clone(&group);
    let second = tokio::spawn(async move { get(&waiting).await });
    while group.snapshot().queued == 0 {
        tokio::task::yield_now().await;
    }
    assert!(
        !origin.is_called().await,
        "it waits here, not at the origin"
    );
    let finish = async {
        peer.send("lf").await;
        peer.head().await;
        peer.send(OK).await;
        peer
    };
    let (whole, _peer) = tokio::join!(read(response), finish);
    assert_eq!(whole, got(200, "half"));
    assert_eq!(within(second).await.unwrap(), Ok(got(200, "ok")));
    assert_eq!(group.snapshot().active, 0);
}

/// A response ages from when its request was sent (RFC 9111 §4.2.3).
#[tokio::test]
async fn a_response_reports_the_wait_before_its_attempt() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.max_concurrent = 1);
    let first = request(Method::GET, "/");
    let asking = async { read(within(group.fetch(first)).await.unwrap()).await };
    let waiting = Arc::clone(&group);
    let second = async {
        while group.snapshot().active == 0 {
            tokio::task::yield_now().await;
        }
        within(waiting.fetch(request(Method::GET, "/")))
            .await
            .unwrap()
    };
    let serving = async {
        let mut peer = origin.accept().await;
        peer.head().await;
        while group.snapshot().queued == 0 {
            tokio::task::yield_now().await;
        }
        let queued = Instant::now();
        peer.send(OK).await;
        peer.head().await;
        sleep(NOTICEABLE).await;
        // The connection ends without an answer: the request is sent again on another one.
        let failed = queued.elapsed();
        drop(peer);
        origin.serve(OK).await;
        failed
    };
    let (_, answer, failed) = tokio::join!(asking, second, serving);
    assert!(u128::from(answer.waited) >= failed.as_millis());
}

#[tokio::test]
async fn a_full_queue_and_a_timeout_in_it_are_reported() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.max_concurrent = 1;
        settings.max_queue = 1;
        settings.queue_timeout = Duration::from_millis(50);
    });
    let asking = Arc::clone(&group);
    let first = tokio::spawn(async move { get(&asking).await });
    let mut peer = origin.accept().await;
    peer.head().await;
    let (one, other) = tokio::join!(get(&group), get(&group));
    assert_eq!(
        (one, other),
        (Err(OriginError::Busy), Err(OriginError::Busy))
    );
    peer.send(OK).await;
    assert_eq!(within(first).await.unwrap(), Ok(got(200, "ok")));
}

#[tokio::test]
async fn giving_a_request_up_gives_its_place_up() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| settings.max_concurrent = 1);
    let asking = Arc::clone(&group);
    let first = tokio::spawn(async move { get(&asking).await });
    let mut peer = origin.accept().await;
    peer.head().await;
    first.abort();
    assert!(peer.is_closed().await);
    let (answer, _) = tokio::join!(get(&group), origin.serve(OK));
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn servers_are_health_checked() {
    let origin = Origin::start().await;
    let group = origin.group_with(|settings| {
        settings.health = Some(HealthCheck {
            path: "/healthz".to_owned(),
            interval: Duration::from_millis(10),
            timeout: HANG,
            fall: 2,
            rise: 1,
            ..HealthCheck::default()
        });
    });
    let up = || group.snapshot().servers[0].health.up;
    let sick = "HTTP/1.1 503 Sick\r\nContent-Length: 0\r\n\r\n";
    let mut peer = origin.accept().await;
    let head = peer.head().await;
    let host = format!("\r\nHost: {}\r\n", origin.server().address);
    assert!(head.starts_with("GET /healthz HTTP/1.1\r\n") && head.contains(&host));
    peer.send(sick).await;
    // When the next check comes, the last one has been counted.
    let mut peer = origin.accept().await;
    assert!(up());
    peer.head().await;
    peer.send(sick).await;
    let mut peer = origin.accept().await;
    assert!(!up());
    peer.head().await;
    peer.send(OK).await;
    origin.accept().await;
    assert!(up());
}
