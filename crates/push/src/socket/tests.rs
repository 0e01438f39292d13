use std::future::poll_fn;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;
use crate::access::read_grant::PushKeys;
use crate::name::Prefix;
use crate::origin::Push;
use crate::settings::PushSettings;
use crate::subscribing::subscription::SubscribeRequest;

/// Encodes a client's frame with an all-zero mask.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut bytes = vec![first];
    if length < 126 {
        bytes.push(0x80 | length as u8);
    } else {
        bytes.push(0xfe);
        bytes.extend_from_slice(&length.to_be_bytes());
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

fn push() -> Push {
    let settings = PushSettings {
        memory: 1 << 20,
        history: 1,
        max_subscribers: 10,
        prefixes: vec![Prefix::parse("/live/").expect("a prefix")],
        ..PushSettings::default()
    };
    Push::start(settings, PushKeys::default()).expect("documents are kept in memory")
}

fn socket(push: &Push) -> Socket {
    let subscription = Subscription::new(push.documents(), SubscribeRequest::default());
    let language = Language::Native {
        pages: None,
        wants_deltas: false,
    };
    Socket::new(subscription.expect("there is room"), language)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_is_disconnected() {
    let push = push();
    let (mut socket, began) = (socket(&push), Instant::now());
    let mut received = Vec::new();
    // Answers the first ping only.
    let mut ping = [0; 2];
    socket.read_exact(&mut ping).await.expect("a ping");
    assert_eq!(ping, [0x89, 0]);
    socket.write_all(&frame(0x8a, b"")).await.expect("taken");
    socket.read_to_end(&mut received).await.expect("the end");
    assert_eq!(received[..2], ping);
    assert_eq!(received[2..6], [0x88, 2 + 19, 0x03, 0xf3]);
    assert!(began.elapsed() >= keep_alive::PING_INTERVAL * 3);
    let stats = push.stats();
    assert_eq!((stats.sockets, stats.subscribers), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn all_clients_get_close_when_the_server_stops() {
    let push = push();
    let mut all = [socket(&push), socket(&push)];
    for socket in &mut all {
        let silent = timeout(Duration::from_secs(1), socket.read_u8()).await;
        assert!(silent.is_err());
    }
    push.close_sockets();
    for socket in &mut all {
        let mut received = Vec::new();
        socket.read_to_end(&mut received).await.expect("the end");
        assert_eq!(received[..4], [0x88, 2 + 22, 0x03, 0xe9]);
    }
}

#[test]
fn messages_are_written_as_the_library_writes_them() {
    for length in [1, 125, 126, 127, 65_535, 65_536] {
        let text = "x".repeat(length);
        let mut frames = ServerBuilder::new().serve(Pipe::default());
        let message = Message::text(text.clone());
        let started = Pin::new(&mut frames).start_send(message);
        started.expect("it is queued");
        let mut expected = Vec::new();
        loop {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut frames).poll_flush(&mut cx);
            let mut space = [0; 4096];
            let mut given = ReadBuf::new(&mut space);
            if !frames.get_mut().give(&mut given) {
                break;
            }
            expected.extend_from_slice(given.filled());
        }
        let mut space = vec![0; expected.len()];
        let mut written = ReadBuf::new(&mut space);
        if put_text(text.as_bytes(), &mut written) {
            assert!(written.filled() == expected, "{length}");
            let mut space = vec![0; expected.len() - 1];
            let mut less = ReadBuf::new(&mut space);
            assert!(!put_text(text.as_bytes(), &mut less));
            assert!(less.filled().is_empty());
        } else {
            // Longer messages are rare, and left to the library.
            assert_eq!(length, 65_536);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unread_events_are_not_taken() {
    let push = push();
    let mut socket = socket(&push);
    let ping = frame(0x89, &[b'x'; 125]);
    let mut taken = 0;
    // Without a reader, input is accepted up to the limit.
    while let Ok(count) = timeout(Duration::from_millis(1), socket.write(&ping)).await {
        taken += count.expect("taken");
    }
    assert!((8_000..=32_000).contains(&taken), "{taken}");
    let mut first = [0; 127];
    socket.read_exact(&mut first).await.expect("a pong");
    assert_eq!(first[..2], [0x8a, 125]);
    let more = timeout(Duration::from_millis(1), socket.write(&ping)).await;
    assert!(more.is_ok(), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn commands_larger_than_a_read_are_complete() {
    let push = push();
    let socket = socket(&push);
    let (mut reader, mut writer) = tokio::io::split(socket);
    let orders = frame(0x81, &[b' '; MAX_COMMAND]).repeat(8);
    let writing = tokio::spawn(async move { writer.write_all(&orders).await });
    let mut head = [0; 2];
    let answered = timeout(keep_alive::PING_INTERVAL / 2, reader.read_exact(&mut head)).await;
    assert!(answered.is_ok(), "it stalls");
    assert_eq!(head[0], 0x81);
    let reading = tokio::spawn(async move { reader.read_to_end(&mut Vec::new()).await });
    writing.await.expect("no panic").expect("taken");
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_behind_waiting_commands() {
    let push = push();
    let mut socket = socket(&push);
    let order = frame(0x81, br#"{"get":"/live/x"}"#);
    let mut answered = 0;
    // The whole burst and some rate-limited commands, each followed by a ping.
    for number in 0..120_u8 {
        socket.write_all(&order).await.expect("taken");
        socket
            .write_all(&frame(0x89, &[number]))
            .await
            .expect("taken");
        let mut pongs = 0;
        while let Ok(Ok(first)) = timeout(Duration::from_micros(100), socket.read_u8()).await {
            let length = socket.read_u8().await.expect("a length");
            let mut payload = vec![0; length.into()];
            socket.read_exact(&mut payload).await.expect("a frame");
            match first {
                0x8a => {
                    assert_eq!(payload, [number]);
                    pongs += 1;
                }
                _ => answered += 1,
            }
        }
        assert_eq!(pongs, 1, "behind {number} orders");
    }
    assert!((100..120).contains(&answered), "{answered}");
}

#[tokio::test(start_paused = true)]
async fn commands_apply_in_order() {
    let push = push();
    let subscription = Subscription::new(push.documents(), SubscribeRequest::default());
    let subscription = subscription.expect("there is room");
    let mut socket = Socket::new(subscription, Language::piper_at("/live/"));
    // They arrive together, and are executed one by one.
    let orders = [
        "SUBSCRIBE a* first",
        "SUBSCRIBE b* second",
        "UNSUBSCRIBE first",
        "UNSUBSCRIBE second",
    ];
    let orders = orders.map(|order| frame(0x81, order.as_bytes())).concat();
    socket.write_all(&orders).await.expect("taken");
    let silent = timeout(Duration::from_secs(1), socket.read_u8()).await;
    assert!(silent.is_err(), "{silent:?}");
    assert_eq!(push.stats().topics, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_after_close_is_disconnected() {
    let push = push();
    let mut socket = socket(&push);
    socket.write_all(&frame(0x82, b"")).await.expect("taken");
    let mut received = Vec::new();
    socket.read_to_end(&mut received).await.expect("the end");
    assert_eq!(received[2..4], [0x03, 0xeb]);
    let piece = [0; 1024];
    let mut taken = 0;
    while socket.write_all(&piece).await.is_ok() {
        taken += piece.len();
    }
    assert_eq!(taken, MAX_DISCARDED);
    let polled = poll_fn(|cx| Pin::new(&mut socket).poll_flush(cx)).await;
    assert!(polled.is_ok());
}
