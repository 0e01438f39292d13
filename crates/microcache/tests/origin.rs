//! `microcache origin`, run for real and looked at through its sockets.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use microcache_testkit::{Process, Signal, WAIT_TIMEOUT, eventually};
use serde_json::Value;

/// An application that is stopped at the end of the test.
struct Application {
    process: Process,
    address: SocketAddr,
}

impl Application {
    fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_microcache"));
        command
            .args(["origin", "--listen", "127.0.0.1:0"])
            .args(flags);
        let mut process = Process::start(&mut command).expect("the binary runs");
        let address = process.ready("its address", |output| {
            let (banner, _) = output.split_once('\n')?;
            banner.rsplit_once("http://")?.1.parse().ok()
        });
        Self { process, address }
    }

    fn get(&self, url: &str) -> Answer {
        self.send("GET", url, "")
    }

    fn send(&self, method: &str, url: &str, fields: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream
            .set_read_timeout(Some(WAIT_TIMEOUT))
            .expect("a time-out");
        let request =
            format!("{method} {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{method} {url}: {error}"),
        }
        Answer::read(&answer)
    }

    fn counters(&self) -> Value {
        self.get("/_origin/counters").json()
    }

    /// These counts, by name.
    fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let counters = self.counters();
        names.map(|name| counters[name].as_u64().expect("a count"))
    }

    fn wait_for(&self, name: &str, at_least: u64) {
        eventually(name, || (self.counts([name])[0] >= at_least).then_some(()));
    }

    /// Asks for all of these at the same time.
    fn get_all(&self, urls: &[&str]) -> Vec<Answer> {
        thread::scope(|scope| {
            let clients: Vec<_> = urls
                .iter()
                .map(|url| scope.spawn(|| self.get(url)))
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("it is answered"))
                .collect()
        })
    }

    /// The CPU time of the process, as the kernel counts it: the 14th and 15th field, in hundredths of a second.
    fn cpu_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.process.pid());
        let text = fs::read_to_string(path).expect("it runs");
        let (_, after_name) = text.rsplit_once(')').expect("a name");
        let fields = after_name.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields
            .map(|field| field.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head is text");
        let status = head.split(' ').nth(1).expect("a status");
        Self {
            status: status.parse().expect("a status"),
            body: bytes[end + 4..].to_vec(),
            head,
        }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    fn promised(&self) -> usize {
        let length = self.field("content-length").expect("a length");
        length.parse().expect("a number")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

const QUICK: &[&str] = &["--work", "0"];

fn quick(flags: &[&str]) -> Application {
    Application::start(&[QUICK, flags].concat())
}

#[test]
fn everything_is_counted_exactly_per_url_and_in_total() {
    let application = quick(&[]);
    for url in ["/a", "/b", "/a", "/a?b=c"] {
        assert_eq!(application.get(url).status, 200);
    }
    application.get("/_origin/counters");
    let counters = application.counters();
    assert_eq!(
        (&counters["requests"], &counters["renders"]),
        (&4.into(), &4.into())
    );
    assert_eq!(counters["per_url"]["/a"]["requests"], 2);
    let one = |url: &str| {
        application
            .get(&format!("/_origin/counters?url={url}"))
            .json()
    };
    assert_eq!(one("/a")["renders"], 2);
    assert_eq!(one("/a%3Fb=c")["renders"], 1);
    assert_eq!(one("/z")["requests"], 0);
    for method in ["DELETE", "POST"] {
        application.get("/a");
        assert_eq!(
            application.send(method, "/_origin/counters", "").json()["requests"],
            0
        );
        assert_eq!(application.counters()["per_url"], serde_json::json!({}));
    }
}

#[test]
fn one_connection_carries_many_requests() {
    let application = quick(&["--size", "10", "--not-modified-share", "100%"]);
    let stream = TcpStream::connect(application.address).expect("it listens");
    stream
        .set_read_timeout(Some(WAIT_TIMEOUT))
        .expect("a time-out");
    let mut reader = BufReader::new(stream);
    for _ in 0..3 {
        let posted = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        reader
            .get_mut()
            .write_all(posted.as_bytes())
            .expect("it reads");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(
                reader.read_line(&mut line).expect("it answers") > 0,
                "it closed"
            );
        }
        reader.read_exact(&mut [0; 10]).expect("a body");
    }
    assert_eq!(application.counts(["requests"]), [3]);
}

#[test]
fn a_page_has_its_size_and_names_its_render() {
    let application = quick(&["--size", "3000"]);
    let [first, second] = ["/", "/"].map(|url| application.get(url));
    assert_eq!((first.body.len(), first.promised()), (3000, 3000));
    assert_ne!(first.body, second.body);
    let text = String::from_utf8(second.body).expect("text");
    assert!(text.contains("Render 2, "), "{text}");
    let head = application.send("HEAD", "/", "");
    assert_eq!((head.body.len(), head.promised()), (0, 3000));
    let own = application.get("/?size=100000&content-type=application/json&status=404");
    assert_eq!((own.status, own.body.len()), (404, 100_000));
    assert_eq!(
        own.json()["version"].as_str().map(|v| &v[..9]),
        Some("Render 4,")
    );
    let wrong = application.get("/?size=x");
    assert_eq!(wrong.status, 400);
    assert!(String::from_utf8_lossy(&wrong.body).contains("expected a number"));
}

#[test]
fn presets_match_their_descriptions() {
    let check = |preset, size, content_type| {
        let application = Application::start(&["--like", preset, "--work", "1ms"]);
        let page = application.get("/");
        assert_eq!((page.status, page.body.len()), (200, size), "{preset}");
        let reported = page.field("content-type").expect("a type");
        assert!(reported.starts_with(content_type), "{preset}: {reported}");
        page
    };
    for (preset, size) in [
        ("wordpress", 57_000),
        ("java-blog", 27_000),
        ("static-100", 100),
    ] {
        let page = check(preset, size, "text/html");
        assert_eq!(page.field("cache-control"), None);
        assert_eq!(page.field("set-cookie"), None);
    }
    assert!(
        check("big-json", 672_864, "application/json")
            .field("etag")
            .is_some()
    );
    assert!(
        check("cim", 5000, "text/html")
            .field("cache-control")
            .is_some()
    );
}

#[test]
fn the_share_of_304_depends_on_the_url_only() {
    let flags = ["--not-modified-share", "25%", "--etag", "--last-modified"];
    let unchanged = |application: &Application| -> Vec<usize> {
        let is_unchanged = |i: &usize| {
            let url = format!("/page/{i}");
            let page = application.get(&url);
            let (etag, date) = (page.field("etag"), page.field("last-modified"));
            let by_tag = format!("If-None-Match: {}\r\n", etag.expect("a tag"));
            let by_date = format!("If-Modified-Since: {}\r\n", date.expect("a date"));
            let [again, since] =
                [by_tag, by_date].map(|fields| application.send("GET", &url, &fields));
            assert_eq!(again.status, since.status);
            match again.status {
                304 => assert_eq!((again.body.len(), again.field("etag")), (0, etag)),
                200 => assert_ne!((&again.body, again.field("etag")), (&page.body, etag)),
                status => panic!("{status}"),
            }
            again.status == 304
        };
        (0..200).filter(is_unchanged).collect()
    };
    let [one, other] = [quick(&flags), quick(&flags)];
    let urls = unchanged(&one);
    assert_eq!(urls, unchanged(&other));
    assert!((30..70).contains(&urls.len()), "{} of 200", urls.len());
    let [requests, renders, not_modified] = one.counts(["requests", "renders", "not_modified"]);
    assert_eq!(not_modified, 2 * urls.len() as u64);
    assert_eq!((requests, renders), (600, 600 - not_modified));
}

#[test]
fn a_page_names_the_request_it_was_rendered_for() {
    let flags = ["--echo", "Accept-Language, Cookie", "--etag"];
    let application = quick(&[&flags[..], &["--not-modified-share", "100%"]].concat());
    let german = application.send("GET", "/", "Accept-Language: de\r\n");
    let text = String::from_utf8_lossy(&german.body);
    let says = "<p>accept-language: de; cookie: -</p>";
    assert!(text.contains(says), "{text}");
    let english = application.send("GET", "/", "Accept-Language: en\r\n");
    assert_ne!(english.field("etag"), german.field("etag"));
    let fields = |language: &str| {
        let etag = german.field("etag").expect("a tag");
        format!("Accept-Language: {language}\r\nIf-None-Match: {etag}\r\n")
    };
    let status = |language| application.send("GET", "/", &fields(language)).status;
    assert_eq!((status("de"), status("en")), (304, 200));
}

#[test]
fn max_age_is_spread_over_the_urls() {
    let application = quick(&["--max-age", "5..8", "--cache-control", "public"]);
    let reported = |i: usize| {
        let page = application.get(&format!("/{i}"));
        page.field("cache-control").expect("it says").to_owned()
    };
    let first: Vec<String> = (0..40).map(reported).collect();
    assert_eq!(first, (0..40).map(reported).collect::<Vec<_>>());
    let all = application.get("/0").head;
    assert!(all.contains("max-age="), "{all}");
    let mut ages: Vec<String> = (0..40)
        .map(|i| application.get(&format!("/{i}")).head)
        .filter_map(|head| {
            head.split_once("max-age=")
                .map(|(_, rest)| rest[..1].to_owned())
        })
        .collect();
    ages.sort();
    ages.dedup();
    assert_eq!(ages, ["5", "6", "7", "8"]);
}

#[test]
fn fields_are_sent_as_configured() {
    let application = quick(&["--vary", "Accept-Encoding", "--set-cookie", "a=b; Path=/"]);
    let page = application.get("/");
    assert_eq!(page.field("vary"), Some("Accept-Encoding"));
    assert_eq!(page.field("set-cookie"), Some("a=b; Path=/"));
}

#[test]
fn errors_and_truncations_are_exact() {
    let application = quick(&["--error-rate", "10%", "--error-status", "502"]);
    let statuses: Vec<u16> = (0..30).map(|_| application.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|&&status| status == 502).count(), 3);
    assert_eq!(application.counts(["errors", "renders"]), [3, 27]);

    let application = quick(&["--truncate-rate", "50%", "--size", "1000"]);
    let short = (0..10)
        .map(|_| application.get("/"))
        .filter(|page| {
            assert_eq!((page.status, page.promised()), (200, 1000));
            page.body.len() < 1000
        })
        .count();
    assert_eq!((short, application.counts(["truncated"])), (5, [5]));
}

#[test]
fn a_slow_body_takes_its_time_and_is_whole() {
    let application = quick(&["--slow-body", "300ms", "--size", "5000"]);
    let begin = Instant::now();
    let page = application.get("/");
    assert_eq!(page.body.len(), 5000);
    assert!(
        begin.elapsed() >= Duration::from_millis(250),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn no_more_renders_than_workers_at_a_time() {
    let application =
        Application::start(&["--work", "20ms", "--work-kind", "sleep", "--workers", "3"]);
    let answers = application.get_all(&["/"; 12]);
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(
        application.counts(["renders", "max_parallel", "busy"]),
        [12, 3, 0]
    );
}

#[test]
fn a_full_queue_answers_503() {
    let flags = ["--work", "60s", "--work-kind", "sleep", "--queue", "1"];
    let application = Application::start(&flags);
    // Their clients go away in the middle; the render goes on all the same.
    let open = |url: &str| {
        let mut stream = TcpStream::connect(application.address).expect("it listens");
        let request = format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    };
    let rendering = open("/");
    application.wait_for("rendering", 1);
    let waiting = open("/");
    application.wait_for("in_flight", 2);
    let busy = application.get("/");
    assert_eq!((busy.status, busy.field("retry-after")), (503, Some("1")));
    drop(waiting);
    drop(rendering);
    eventually("the end of the requests", || {
        (application.counts(["in_flight"]) == [0]).then_some(())
    });
    assert_eq!(
        application.counts(["rendering", "renders", "busy"]),
        [1, 1, 1]
    );
}

#[test]
fn cpu_work_burns_cpu_time() {
    let application = Application::start(&["--work", "50ms", "--workers", "2"]);
    let before = application.cpu_time();
    application.get_all(&["/"; 4]);
    let used = application.cpu_time().saturating_sub(before);
    // Each end is off by a tick at most.
    assert!(used >= Duration::from_millis(200 - 20), "{used:?}");

    let application = Application::start(&["--work", "500ms", "--work-kind", "sleep"]);
    let (begin, before) = (Instant::now(), application.cpu_time());
    application.get("/");
    assert!(begin.elapsed() >= Duration::from_millis(500));
    let used = application.cpu_time().saturating_sub(before);
    assert!(used < Duration::from_millis(250), "{used:?}");
}

#[test]
fn the_counters_are_printed_when_it_stops() {
    let mut application = Application::start(&["--like", "static-100"]);
    let reported = application.process.output_with("try ");
    assert!(reported.contains("100 bytes of text/html"), "{reported}");
    assert!(reported.contains("/_origin/counters"), "{reported}");
    application.process.signal(Signal::TERM);
    assert_eq!(application.process.wait().code(), Some(0));
    application
        .process
        .output_with("origin stopped after 0 requests");
}

#[test]
fn bad_input_gets_one_line_and_a_remedy() {
    let application = quick(&[]);
    let taken = application.address.to_string();
    for (flags, says) in [
        (&["--like", "x"][..], "expected one of wordpress, java-blog"),
        (
            &["--work", "5"],
            "--work: expected a duration, such as 180ms",
        ),
        (&["--workers", "0"], "--workers: expected a number from 1"),
        (&["--listen", "3000"], "such as 127.0.0.1:3000"),
        (&["--wrk", "1"], "'--work'"),
        (
            &["--listen", &taken],
            "choose another address with --listen",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
            .arg("origin")
            .args(flags)
            .output()
            .expect("the binary runs");
        let reported = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {reported}");
        assert_eq!(reported.lines().count(), 1, "{reported}");
        assert!(reported.contains(says), "{reported}");
    }
}
