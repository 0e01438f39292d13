//! Subscription runs against scripted servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use microcache_testkit::listen;

use super::{
    DocumentTemplate, PublishSettings, StreamKind, SubscribeReport, SubscribeSettings, run,
};
use crate::load::{Format, LoadError, LoadTarget, RequestFault, Settings, TargetUrl};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const CREATED: u16 = 201;

/// Open streams of a server, in the order of arrival.
type Subscribers = Vec<TcpStream>;

/// Behaviour of a scripted server.
struct ServerScript {
    /// Response to a stream request, by the number of earlier ones.
    open: fn(usize) -> String,
    /// Delivers a publication, given the number of earlier ones. Returns the status of the response, 0 for
    /// none.
    publish: fn(u64, &str, &mut Subscribers) -> u16,
}

/// Server that delivers every publication to every stream.
const HONEST: ServerScript = ServerScript {
    open: |_| HEAD.to_owned(),
    publish: |_, body, subscribers| to_all(subscribers, &event(body)),
};

fn event(data: &str) -> String {
    let event = format!("id: 1\nevent: put\ndata: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn to_all(subscribers: &mut Subscribers, bytes: &str) -> u16 {
    for subscriber in subscribers {
        to(subscriber, bytes);
    }
    CREATED
}

/// Writes to a subscriber. Errors are ignored: the client may be gone.
fn to(mut subscriber: &TcpStream, bytes: &str) {
    let _ = subscriber.write_all(bytes.as_bytes());
}

#[derive(Default)]
struct State {
    opened: usize,
    published: u64,
    subscribers: Subscribers,
}

/// Starts a server and returns its URL.
fn start(script: ServerScript) -> String {
    let state = Arc::new(Mutex::new(State::default()));
    let script = Arc::new(script);
    let address = listen(move |connection| {
        let (state, script) = (Arc::clone(&state), Arc::clone(&script));
        thread::spawn(move || serve(&connection, &state, &script));
    });
    format!("http://{address}/live/x")
}

fn serve(mut connection: &TcpStream, state: &Mutex<State>, script: &ServerScript) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.split("Content-Length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).ok()?;
        let mut state: MutexGuard<'_, State> = state.lock().ok()?;
        if head.starts_with("GET ") {
            let wanted = ["Accept: text/event-stream\r\n", "Upgrade: websocket\r\n"];
            assert!(wanted.iter().any(|field| head.contains(field)), "{head}");
            let answer = (script.open)(state.opened);
            state.opened += 1;
            // Registered before the response is sent, so that the next publication reaches it.
            state.subscribers.push(connection.try_clone().ok()?);
            to(connection, &answer);
            continue;
        }
        let number = state.published;
        state.published += 1;
        let body = String::from_utf8(body).ok()?;
        let status = (script.publish)(number, &body, &mut state.subscribers);
        drop(state);
        // Closes the connection without a response.
        if status == 0 {
            return None;
        }
        let answer = format!("HTTP/1.1 {status} It\r\nContent-Length: 0\r\n\r\n");
        connection.write_all(answer.as_bytes()).ok()?;
    }
}

/// Runs four streams on two threads with five publications.
fn measured(script: ServerScript, stalled: f64) -> Result<SubscribeReport, LoadError> {
    measured_as(StreamKind::Events, script, stalled)
}

fn measured_as(
    kind: StreamKind,
    script: ServerScript,
    stalled: f64,
) -> Result<SubscribeReport, LoadError> {
    let url = TargetUrl::parse(&start(script)).expect("a url");
    let mut settings = Settings::new(vec![LoadTarget::get(url.clone())]);
    settings.threads = 2;
    settings.duration = None;
    settings.requests = Some(5);
    // Publications arrive before their response does, so a missing one needs no long wait.
    settings.grace_period = Duration::from_millis(500);
    let publish = PublishSettings {
        every: Duration::from_millis(5),
        url,
        method: "PUT".to_owned(),
        document: DocumentTemplate::new("{event}", 100).expect("it has a place"),
    };
    let subscribe = SubscribeSettings {
        streams: 4,
        kind,
        stalled,
        publish: Some(publish),
    };
    run(&settings, &subscribe, &mut |_| ())
}

fn report(script: ServerScript) -> SubscribeReport {
    measured(script, 0.0).expect("there are streams")
}

/// Counts of skipped, lost, reordered and duplicate deliveries.
fn missing(report: &SubscribeReport) -> [u64; 4] {
    let published = report.publications.as_ref().expect("it published");
    [
        published.skipped,
        published.lost,
        published.disordered,
        published.duplicates,
    ]
}

fn deliveries(report: &SubscribeReport) -> u64 {
    let published = report.publications.as_ref().expect("it published");
    published.delivered.count()
}

#[test]
fn everything_arrives_everywhere() {
    let report = report(HONEST);
    assert_eq!(report.streams.opened, 4);
    assert_eq!(report.streams.healthy, 4);
    assert_eq!(report.streams.gone(), 0);
    assert_eq!(report.events, 20);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
    let published = report.publications.as_ref().expect("it published");
    assert_eq!(published.delivered.count(), 20);
    assert_eq!(published.answered.count(), 5);
    assert_eq!(published.last.count(), 5);
    assert_eq!(published.complete, 5);
    assert!(published.delivered.max() <= published.last.max());
    assert_eq!(report.opening.count(), 4);
}

#[test]
fn earlier_events_do_not_count() {
    let report = report(ServerScript {
        open: |_| format!("{HEAD}{}", event("an old value")),
        ..HONEST
    });
    assert_eq!(report.events, 24);
    assert_eq!(deliveries(&report), 20);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
}

#[test]
fn an_event_without_delivery_is_missed() {
    // Number 0 is the initial check.
    let report = report(ServerScript {
        publish: |number, body, subscribers| {
            let event = event(body);
            match number {
                2 => {}
                5 => to(&subscribers[0], &event),
                _ => return to_all(subscribers, &event),
            }
            CREATED
        },
        ..HONEST
    });
    assert_eq!(missing(&report), [4, 3, 0, 0]);
    assert_eq!(deliveries(&report), 3 * 4 + 1);
    let published = report.publications.as_ref().expect("it published");
    assert_eq!(published.complete, 3);
}

#[test]
fn late_and_duplicate_events_are_reported() {
    static HELD: Mutex<String> = Mutex::new(String::new());
    let report = report(ServerScript {
        publish: |number, body, subscribers| {
            let mut held = HELD.lock().expect("no test has panicked");
            match number {
                2 => {
                    *held = event(body);
                    CREATED
                }
                3 => to_all(subscribers, &format!("{}{held}", event(body))),
                4 => to_all(subscribers, &format!("{0}{0}", event(body))),
                _ => to_all(subscribers, &event(body)),
            }
        },
        ..HONEST
    });
    assert_eq!(missing(&report), [0, 0, 4, 4]);
}

#[test]
fn ended_and_broken_streams_are_closed() {
    let report = report(ServerScript {
        publish: |number, body, subscribers| {
            to_all(subscribers, &event(body));
            if number == 2 {
                to(&subscribers[0], "0\r\n\r\n");
                to(&subscribers[1], "no chunk\r\n");
                let _ = subscribers[2].shutdown(Shutdown::Both);
            }
            CREATED
        },
        ..HONEST
    });
    let streams = &report.streams;
    assert_eq!((streams.opened, streams.healthy), (4, 1));
    assert_eq!(streams.ended, 1);
    let broken: Vec<_> = streams.broken.each().collect();
    assert_eq!(
        broken,
        [(RequestFault::ClosedEarly, 1), (RequestFault::Malformed, 1)]
    );
    assert_eq!(streams.gone(), 3);
    // Publications after the end of a stream do not count as lost.
    assert_eq!(missing(&report), [0, 0, 0, 0]);
    assert_eq!(deliveries(&report), 4 * 2 + 3);
    let text = report.write(Format::Tables).expect("it has words");
    let line = "closed     ended by the server: 1  truncated response: 1  malformed response: 1";
    assert!(text.lines().any(|row| row == line), "{text}");
}

#[test]
fn a_publication_seen_by_closed_streams_only_is_incomplete() {
    let report = report(ServerScript {
        publish: |number, body, subscribers| {
            let event = event(body);
            match number {
                // Delivered on all streams but one; then one of those breaks.
                2 => subscribers[..3].iter().for_each(|it| to(it, &event)),
                3 => {
                    to_all(subscribers, &event);
                    let _ = subscribers[0].shutdown(Shutdown::Both);
                }
                // A duplicate on one stream is not a delivery on another.
                4 => subscribers[1..3]
                    .iter()
                    .for_each(|it| to(it, &format!("{event}{event}"))),
                _ => return to_all(subscribers, &event),
            }
            CREATED
        },
        ..HONEST
    });
    assert_eq!(report.streams.healthy, 3);
    let published = report.publications.as_ref().expect("it published");
    assert_eq!(published.complete, 3);
}

#[test]
fn the_number_of_a_lost_response_is_not_reused() {
    static NUMBERS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let report = report(ServerScript {
        publish: |number, body, subscribers| {
            to_all(subscribers, &event(body));
            NUMBERS.lock().expect("no test has panicked").push(number);
            // The response to number 3 is lost.
            if number == 3 { 0 } else { CREATED }
        },
        ..HONEST
    });
    // It counts as failed and is retried under another number.
    assert_eq!(NUMBERS.lock().expect("no test has panicked").len(), 7);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
    assert_eq!(deliveries(&report), 6 * 4);
    // If it was not published, it does not count as lost.
    let report = self::report(ServerScript {
        publish: |number, body, subscribers| match number {
            3 => 0,
            _ => to_all(subscribers, &event(body)),
        },
        ..HONEST
    });
    assert_eq!(missing(&report), [0, 0, 0, 0]);
    assert_eq!(deliveries(&report), 5 * 4);
}

#[test]
fn refused_streams_are_reported_by_reason() {
    let report = report(ServerScript {
        open: |number| match number {
            0 => HEAD.to_owned(),
            1 => "HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nfull\n".to_owned(),
            2 => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
            _ => "nonsense\r\n\r\n".to_owned(),
        },
        ..HONEST
    });
    assert_eq!(report.streams.opened, 1);
    assert_eq!(report.streams.refused(), 3);
    let text = report.write(Format::Tables).expect("it has words");
    let line = "refused    503: 1  not an event stream: 1  malformed response: 1";
    assert!(text.lines().any(|row| row == line), "{text}");
    assert_eq!(deliveries(&report), 5);
}

#[test]
fn a_run_without_a_stream_is_none() {
    let script = ServerScript {
        open: |_| "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ..HONEST
    };
    let error = measured(script, 0.0).expect_err("there is no stream");
    assert_eq!(error.to_string(), "no event stream could be opened: 404: 4");
}

#[test]
fn websockets_report_the_same() {
    let script = ServerScript {
        open: |_| {
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                .to_owned()
        },
        publish: |number, body, subscribers| {
            assert!(body.len() < 126, "its length fits into one byte");
            let length = char::from(body.len() as u8);
            // A text frame, written in two pieces.
            for subscriber in &*subscribers {
                let mut subscriber: &TcpStream = subscriber;
                let _ = subscriber.write_all(&[0x81]);
                to(subscriber, &format!("{length}{body}"));
            }
            if number == 3 {
                let mut first = &subscribers[0];
                let _ = first.write_all(&[0x88, 0]);
            }
            CREATED
        },
    };
    let report = measured_as(StreamKind::WebSocket, script, 0.0).expect("there are streams");
    assert_eq!(report.streams.opened, 4);
    assert_eq!(report.streams.ended, 1);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
    assert_eq!(deliveries(&report), 5 * 3 + 3);
    let text = report.write(Format::Tables).expect("it has words");
    assert!(text.contains("\n4 WebSockets, 2 threads, "), "{text}");
}

#[test]
fn stalled_streams_do_not_slow_the_others() {
    let report = measured(HONEST, 0.5).expect("there are streams");
    assert_eq!(report.streams.stalled, 2);
    assert_eq!(report.streams.healthy, 2);
    assert_eq!(report.streams.gone(), 0);
    assert_eq!(deliveries(&report), 10);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
}

#[test]
fn a_refused_publisher_gets_a_remedy() {
    let script = ServerScript {
        publish: |_, _, _| 401,
        ..HONEST
    };
    let error = measured(script, 0.0)
        .expect_err("it is unauthorized")
        .to_string();
    assert!(
        error.contains("is not accepted as a publication: the response has status 401"),
        "{error}"
    );
    assert!(
        error.contains("-H 'Authorization: Bearer SECRET'"),
        "{error}"
    );
}

#[test]
fn publications_that_are_refused_later_are_counted() {
    let report = report(ServerScript {
        publish: |number, body, subscribers| match number {
            3 => 503,
            _ => to_all(subscribers, &event(body)),
        },
        ..HONEST
    });
    let published = report.publications.as_ref().expect("it published");
    assert_eq!(published.answered.count(), 4);
    assert_eq!(published.refused.get(&503), Some(&1));
    assert_eq!(deliveries(&report), 16);
    assert_eq!(missing(&report), [0, 0, 0, 0]);
}

#[test]
fn the_report_can_be_read_by_programs() {
    let text = report(HONEST).write(Format::Json).expect("it has words");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (path, expected) in [
        ("/streams/opened", 4),
        ("/events", 20),
        ("/publications/published", 5),
        ("/publications/deliveries", 20),
        ("/publications/lost", 0),
        ("/publications/stream_ms/count", 20),
        ("/publications/last_stream_ms/count", 5),
    ] {
        assert_eq!(
            value.pointer(path),
            Some(&expected.into()),
            "{path} in {text}"
        );
    }
}
