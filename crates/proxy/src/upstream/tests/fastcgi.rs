//! Servers with FastCGI.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use microcache_policy::Scheme;

use super::*;
use crate::upstream::OriginProtocol;
use crate::upstream::fastcgi::call::ScriptCall;
use crate::upstream::php::script::Script;

/// The end of a request that was processed.
const END: &[u8] = b"\x01\x03\x00\x01\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";

fn record(kind: u8, content: &str) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content.as_bytes()].concat()
}

fn output(content: &str) -> Vec<u8> {
    record(6, content)
}

fn scripted(origin: &Origin, keep_alive: bool) -> (Arc<Group>, Arc<Mutex<Vec<String>>>) {
    origin.group_and_log(|settings| {
        settings.servers[0].protocol = OriginProtocol::FastCgi;
        settings.php.keep_alive = keep_alive;
    })
}

/// A request for a script.
fn call(method: Method, body: &'static str) -> OriginRequest {
    let mut request = request(method, "/a.php?b=c");
    if !body.is_empty() {
        request.body = Body::Full(Bytes::from_static(body.as_bytes()));
    }
    request.extensions.insert(Arc::new(ScriptCall {
        script: Script::new(Path::new("/srv"), b"/a.php".to_vec(), Vec::new()),
        scheme: Scheme::Http,
        client: None,
        server: IpAddr::V4(Ipv4Addr::LOCALHOST),
    }));
    request
}

/// Reads a request up to the record that ends its body, and returns the kinds and contents of its records.
async fn read_request(peer: &mut Peer) -> Vec<(u8, Vec<u8>)> {
    let mut records = Vec::new();
    loop {
        let mut header = [0; 8];
        within(peer.stream.read_exact(&mut header)).await.unwrap();
        let mut content = vec![0; usize::from(u16::from_be_bytes([header[4], header[5]]))];
        within(peer.stream.read_exact(&mut content)).await.unwrap();
        let is_end = header[1] == 5 && content.is_empty();
        records.push((header[1], content));
        if is_end {
            return records;
        }
    }
}

async fn write(peer: &mut Peer, parts: &[&[u8]]) {
    within(peer.stream.write_all(&parts.concat()))
        .await
        .unwrap();
}

/// The answer to one request.
async fn answered(origin: &Origin, group: &Group, parts: &[&[u8]]) -> Result<Got, OriginError> {
    let serving = async {
        let mut peer = origin.accept().await;
        read_request(&mut peer).await;
        write(&mut peer, parts).await;
    };
    let (answer, ()) = tokio::join!(fetch(group, call(Method::GET, "")), serving);
    answer
}

#[tokio::test]
async fn a_script_answers() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let serving = async {
        let mut peer = origin.accept().await;
        let records = read_request(&mut peer).await;
        let kinds: Vec<u8> = records.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [1, 4, 4, 5, 5]);
        assert_eq!(records[3].1, b"name=value");
        let variables = String::from_utf8_lossy(&records[1].1).into_owned();
        for variable in [
            "SCRIPT_FILENAME/srv/a.php",
            "CONTENT_LENGTH10",
            "QUERY_STRINGb=c",
        ] {
            assert!(variables.contains(variable), "{variables}");
        }
        let head = output("Status: 404 Not Found\r\nX-A: b\r\n\r\nnot ");
        write(&mut peer, &[&head, &output("found"), &output(""), END]).await;
        assert!(
            peer.is_closed().await,
            "a worker of php-fpm is bound to its connection"
        );
    };
    let asking = async {
        let request = call(Method::POST, "name=value");
        let response = within(group.fetch(request)).await.unwrap();
        let fields = response.fields.fields();
        assert_eq!(fields.get("x-a"), Some(&b"b"[..]));
        assert!(!fields.contains("status"));
        assert_eq!(read(response).await, got(404, "not found"));
    };
    tokio::join!(serving, asking);
    assert_eq!(group.snapshot().servers[0].idle, 0);
}

#[tokio::test]
async fn an_answer_may_arrive_byte_by_byte() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let raw = [
        output("Content-Length: 4\r\n\r\n"),
        record(7, "oops"),
        output("body"),
        output(""),
        END.to_vec(),
    ]
    .concat();
    let serving = async {
        let mut peer = origin.accept().await;
        read_request(&mut peer).await;
        for byte in raw {
            // The body is complete before its end, which is then not waited for.
            let _ = peer.stream.write_all(&[byte]).await;
            tokio::task::yield_now().await;
        }
    };
    let (answer, ()) = tokio::join!(fetch(&group, call(Method::GET, "")), serving);
    assert_eq!(answer, Ok(got(200, "body")));
}

/// It may be kept in memory, which charges its length.
#[tokio::test]
async fn a_whole_body_takes_no_more_memory_than_its_length() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let (first, second) = ("a".repeat(6000), "b".repeat(4000));
    let records = [&first, &second].map(|content| output(content));
    for head in ["Content-Length: 10000\r\n\r\n", "X: 1\r\n\r\n"] {
        let parts = [&output(head)[..], &records[0], &records[1], END].concat();
        let serving = async {
            let mut peer = origin.accept().await;
            read_request(&mut peer).await;
            write(&mut peer, &[&parts]).await;
        };
        let (response, ()) = tokio::join!(group.fetch(call(Method::GET, "")), serving);
        let Body::Full(body) = response.expect("an answer").body else {
            panic!("it did not arrive at once");
        };
        assert_eq!(body, format!("{first}{second}"));
        let whole = body.try_into_mut().expect("nothing else refers to it");
        assert_eq!(whole.capacity(), 10_000);
    }
}

#[tokio::test]
async fn an_application_that_dies_is_told_from_one_that_ends() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let head = output("X: 1\r\n\r\n");
    let half = answered(&origin, &group, &[&head, &output("half")])
        .await
        .unwrap();
    assert_eq!(
        (half.body.as_str(), half.end),
        ("half", Err(BodyError::Incomplete))
    );
    let early = answered(&origin, &group, &[&record(7, "dies")]).await;
    assert_eq!(early, Err(OriginError::Disconnected));
    let none = answered(&origin, &group, &[]).await;
    assert_eq!(none, Err(OriginError::Disconnected));
}

#[tokio::test]
async fn lengths_are_verified() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let head = output("Content-Length: 4\r\n\r\n");
    for (body, expected) in [
        ("bodies", OriginError::Malformed("bytes after its end")),
        ("bod", OriginError::Malformed("fewer bytes than announced")),
    ] {
        let answer = answered(&origin, &group, &[&head, &output(body), END]).await;
        // What arrived with the head is judged before any of it is forwarded.
        match answer {
            Err(error) => assert_eq!(error, expected),
            Ok(got) => assert!(got.end.is_err(), "{got:?}"),
        }
    }
    for malformed in [
        &output("Status: 1\r\n\r\n")[..],
        &output("Transfer-Encoding: chunked\r\n\r\n"),
        END,
        b"HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let answer = answered(&origin, &group, &[malformed]).await;
        assert!(
            matches!(answer, Err(OriginError::Malformed(_))),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn responses_without_content_have_none() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, false);
    let head = output("Status: 304 Not Modified\r\n\r\nnothing");
    let answer = answered(&origin, &group, &[&head, END]).await;
    assert_eq!(answer, Ok(got(304, "")));
}

#[tokio::test]
async fn errors_are_logged_together_within_a_bound() {
    let origin = Origin::start().await;
    let (group, logged) = scripted(&origin, false);
    let flood = record(7, &"x".repeat(60_000));
    let head = output("X: 1\r\n\r\n");
    let parts = [
        &record(7, "PHP message: dis")[..],
        &record(7, "k\u{7} full\n"),
        &flood,
        &head,
        END,
    ];
    assert_eq!(answered(&origin, &group, &parts).await, Ok(got(200, "")));
    let first = logged.lock()[0].clone();
    assert!(first.contains(": PHP message: disk  full | xxx"), "{first}");
    assert!(first.len() < 5000 && logged.lock().len() == 1, "{first}");
}

#[tokio::test]
async fn connections_are_kept_if_wanted_and_a_closed_one_is_replaced() {
    let origin = Origin::start().await;
    let (group, _) = scripted(&origin, true);
    let page = output("X: 1\r\n\r\nok");
    let serving = async {
        let mut peer = origin.accept().await;
        for _ in 0..2 {
            let records = read_request(&mut peer).await;
            assert_eq!(records[0].1[2], 1, "it is asked to stay open");
            write(&mut peer, &[&page, END]).await;
        }
        drop(peer);
        let mut peer = origin.accept().await;
        read_request(&mut peer).await;
        write(&mut peer, &[&page, END]).await;
        peer
    };
    let asking = async {
        for _ in 0..3 {
            let answer = fetch(&group, call(Method::GET, "")).await;
            assert_eq!(answer, Ok(got(200, "ok")));
        }
    };
    let (peer, ()) = tokio::join!(serving, asking);
    assert_eq!(group.snapshot().servers[0].idle, 1);
    drop(peer);
}
