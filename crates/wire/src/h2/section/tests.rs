use super::*;

const GET: &str = ":method: GET\n:scheme: http\n:path: /a?b\n:authority: a.example\n";

const CONNECT: &str = ":method: CONNECT\n:scheme: http\n:path: /\n:authority: a\n";

fn section(text: &str, is_trailer: bool, limits: HeadLimits) -> FieldSection {
    let mut section = FieldSection::default();
    section.begin(is_trailer, limits);
    for line in text.lines() {
        let at = line[1..].find(": ").expect("a field") + 1;
        section.take(&line.as_bytes()[..at], &line.as_bytes()[at + 2..]);
    }
    section
}

fn wrong(text: &str) -> SectionError {
    let mut section = section(text, false, HeadLimits::default());
    section.request().map(|_| ()).expect_err(text)
}

#[test]
fn a_request_is_read() {
    let text = format!(
        "{GET}cookie: a=1\nx-a: 1\ncookie: b=2\npriority: u=1\ncontent-length: 5\nexpect: 100-continue"
    );
    let mut section = section(&text, false, HeadLimits::default());
    let head = section.request().expect("it is right");
    assert_eq!(
        (head.method, head.host, head.target),
        (&b"GET"[..], &b"a.example"[..], &b"/a?b"[..])
    );
    let lines = b"x-a: 1\r\npriority: u=1\r\ncontent-length: 5\r\nexpect: 100-continue\r\ncookie: a=1; b=2\r\n";
    assert_eq!(head.fields.as_block(), lines);
    assert_eq!(
        (head.length, head.expects_continue, head.priority.urgency),
        (Some(5), true, 1)
    );
    for (text, host) in [
        (":method: GET\n:scheme: http\n:path: /\nhost: b:80", "b:80"),
        (&format!("{GET}host: A.example"), "a.example"),
        (
            ":method: OPTIONS\n:scheme: https\n:path: *\n:authority: c",
            "c",
        ),
    ] {
        let mut section = super::tests::section(text, false, HeadLimits::default());
        assert_eq!(
            section.request().expect("it is right").host,
            host.as_bytes()
        );
    }
}

#[test]
fn an_extended_connect_is_an_upgrade() {
    let text = format!("{CONNECT}:protocol: websocket\nsec-websocket-version: 13");
    let mut section = section(&text, false, HeadLimits::default());
    let head = section.request().expect("it is right");
    assert_eq!((head.method, head.is_tunnel), (&b"GET"[..], true));
    assert_eq!(head.fields.get("upgrade"), Some(&b"websocket"[..]));
    assert!(head.fields.contains("sec-websocket-key"));
}

#[test]
fn malformed_sections_are_no_requests() {
    for text in [
        "",
        ":scheme: http\n:path: /\n:authority: a",
        ":method: GET\n:path: /\n:authority: a",
        ":method: GET\n:scheme: http\n:authority: a",
        ":method: GET\n:scheme: http\n:path: /",
        ":method: GET\n:scheme: ftp\n:path: /\n:authority: a",
        ":method: GET\n:scheme: http\n:path: \n:authority: a",
        ":method: GET\n:scheme: http\n:path: x\n:authority: a",
        ":method: GET\n:scheme: http\n:path: *\n:authority: a",
        ":method: G T\n:scheme: http\n:path: /\n:authority: a",
        ":method: CONNECT\n:scheme: http\n:path: /\n:authority: a:1",
        &format!("{GET}:method: GET"),
        &format!("{GET}:status: 200"),
        &format!("{GET}:protocol: websocket"),
        &format!("{CONNECT}:protocol: websocket\n:protocol: websocket"),
        &format!("{CONNECT}:protocol: web\rsocket"),
        &format!("{GET}x: y\n:x: y"),
        &format!("cookie: y\n{GET}"),
        &format!("{GET}X: y"),
        &format!("{GET}x y: z"),
        &format!("{GET}x:  z"),
        &format!("{GET}x: z\t"),
        &format!("{GET}x: z\rw"),
        &format!("{GET}connection: close"),
        &format!("{GET}transfer-encoding: chunked"),
        &format!("{GET}upgrade: h2c"),
        &format!("{GET}te: trailers, deflate"),
        &format!("{GET}host: b"),
        &format!("{GET}host: a.example\nhost: a.example"),
        &format!("{GET}content-length: +5"),
        &format!("{GET}content-length: 5\ncontent-length: 6"),
        &format!("{GET}content-length: 9223372036854775808"),
    ] {
        assert!(matches!(wrong(text), SectionError::Malformed(_)), "{text}");
    }
}

#[test]
fn sections_above_a_limit_get_a_response() {
    let long = format!("{GET}x: {}", "y".repeat(40_000));
    let many = format!("{GET}{}", "x: y\n".repeat(200));
    let path = format!(
        ":method: GET\n:scheme: http\n:path: /{}\n:authority: a",
        "x".repeat(9000)
    );
    for (text, status) in [
        (long.as_str(), 431),
        (&many, 431),
        (&path, 414),
        (
            ":method: GET\n:scheme: http\n:path: /a b\n:authority: a",
            400,
        ),
        (
            ":method: GET\n:scheme: http\n:path: /\n:authority: a@b",
            400,
        ),
        (":method: CONNECT\n:authority: a:443", 405),
        (&format!("{CONNECT}:protocol: h2c"), 501),
        (&format!("{CONNECT}:protocol: connect-udp"), 501),
        (&format!("{CONNECT}:protocol: foo"), 501),
    ] {
        assert!(
            matches!(wrong(text), SectionError::Refused(is, _) if is == status),
            "{text}"
        );
    }
}

#[test]
fn trailers_have_no_pseudo_header_fields() {
    let trailers = section(
        "x-sum: 1\nauthorization: a\ncontent-length: 5\nhost: b\ncookie: c\nif-match: d",
        true,
        HeadLimits::default(),
    )
    .trailers();
    assert_eq!(
        trailers.map(FieldsBuf::into_block),
        Ok(b"x-sum: 1\r\n".to_vec())
    );
    let wrong = section(":path: /", true, HeadLimits::default()).trailers();
    assert!(matches!(wrong, Err(SectionError::Malformed(_))));
}
