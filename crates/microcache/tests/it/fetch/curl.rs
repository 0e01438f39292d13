//! Flags that fingers know from `curl`: what is shown, tried again, believed, sent, and by which way.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::origin_with_page;
use super::place::{Place, printed};
use crate::support::{CertificateFile, Origin, Proxy, Reply, listen};

#[test]
fn requests_and_responses_are_shown_without_secrets() {
    let origin = Origin::start();
    origin.on("/page").answer(|seen| {
        let status = if seen.field("if-none-match").is_some() {
            304
        } else {
            200
        };
        let fields = ["Cache-Control: max-age=600", "ETag: \"a\""];
        let reply = Reply::new(status).with_all(&fields);
        if status == 304 {
            reply
        } else {
            reply.body("the page")
        }
    });
    let login = Reply::new(200).with("Set-Cookie: session=hush; Path=/");
    origin.on("/login").reply(login.body("in"));
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    let me = ["-v", "-u", "me:hush", "-H", "Cookie: a=hush"];
    let shows = |flags: &[&str], target: &str, parts: &[&str]| {
        let run = place.run(&[&me[..], flags, &[&url(target)]].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        for part in parts {
            let line = |line: &str| line.starts_with(part);
            assert!(run.err.lines().any(line), "{part}: {}", run.err);
        }
        assert!(!run.err.contains("hush"), "{}", run.err);
        assert!(!run.err.contains("bWU6aHVzaA"), "{}", run.err);
        run
    };
    let host = format!("> host: {}", origin.address());
    let miss = [
        "> GET /page HTTP/1.1",
        &host,
        "> authorization: Basic [hidden]",
        "> cookie: [hidden]",
        "> accept: */*",
        "< HTTP/1.1 200 OK",
        "< etag: \"a\"",
        "* miss: the server answered 200; it is stored, fresh for 10 min",
    ];
    let first = shows(&[], "/page", &miss);
    assert_eq!(first.out, "the page");
    let hit = shows(&[], "/page", &["* hit: ", "< HTTP/1.1 200 OK", "< age: "]);
    assert!(!hit.err.contains("> "), "nothing is sent: {}", hit.err);
    let confirmed = [
        "> if-none-match: \"a\"",
        "< HTTP/1.1 304 Not Modified",
        "* validated: ",
        "< HTTP/1.1 200 OK",
    ];
    shows(&["--no-cache"], "/page", &confirmed);
    shows(
        &[],
        "/login",
        &["< set-cookie: session=[hidden]; Path=/", "* miss: "],
    );
    assert_eq!(origin.count("/page"), 2);
}

#[test]
fn transient_failures_are_retried() {
    let origin = Origin::start();
    let busy = || Reply::new(503).with("Retry-After: 0").body("not now");
    let page = || Reply::new(200).body("the page");
    origin.on("/busy").reply(busy()).reply(page());
    origin.on("/gone").reply(Reply::hang_up()).reply(page());
    let half = || {
        let head = Reply::new(200).with("Content-Length: 8");
        head.send("the ").close()
    };
    origin.on("/breaks").reply(half()).reply(page());
    // A copy of the failure is not taken for the next answer.
    let kept = Reply::new(503).with("Cache-Control: max-age=600");
    origin.on("/kept").reply(kept.body("no")).reply(page());
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    for target in ["/busy", "/gone", "/breaks", "/kept"] {
        let run = place.run(&["--retry", "1", "-o", "file", &url(target)]);
        assert_eq!(run.code, 0, "{target}: {}", run.err);
        assert!(run.err.contains("retrying in 1 s"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        let file = fs::read_to_string(place.path("file")).expect("it is there");
        assert_eq!(file, "the page", "{target}");
        fs::remove_file(place.path("file")).expect("removed");
        assert_eq!(origin.count(target), 2, "{target}");
    }
    let silent = Origin::start();
    silent.on("/busy").reply(busy()).reply(page());
    let run = place.run(&["-s", "--retry", "5", &format!("{}/busy", silent.url())]);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("the page", ""));
}

#[test]
fn permanent_failures_are_not_retried() {
    let origin = Origin::start();
    let for_ever = ["Retry-After: 1000000000"];
    origin.on("/none").reply(Reply::new(404).body("none"));
    origin
        .on("/years")
        .reply(Reply::new(503).with_all(&for_ever).body("no"));
    origin
        .on("/late")
        .reply(Reply::new(429).with("Retry-After: 1000").body("no"));
    origin.on("/breaks").reply(
        Reply::new(200)
            .with("Content-Length: 8")
            .send("the ")
            .close(),
    );
    origin.on("/change").reply(Reply::hang_up());
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    for (flags, target, code, out, says) in [
        (&[][..], "/none", 4, "", "answered 404"),
        (&[], "/years", 4, "", "Retry-After is 11574 days"),
        (&["--no-fail"], "/years", 0, "no", ""),
        (&["-m", "100"], "/late", 4, "", "more than --timeout allows"),
        (&["-d", "a=1"], "/change", 1, "", "no answer"),
    ] {
        let before = origin.count(target);
        let run = place.run(&[&["--retry", "3"][..], flags, &[&url(target)]].concat());
        assert_eq!((run.code, run.out.as_str()), (code, out), "{}", run.err);
        assert!(run.err.contains(says), "{target}: {}", run.err);
        assert_eq!(origin.count(target), before + 1, "{target}: {}", run.err);
    }
    // What is in a pipe cannot be taken back.
    let broken = place.run(&["--retry", "3", &url("/breaks")]);
    assert_eq!(broken.code, 1, "{}", broken.err);
    assert!(broken.err.contains("was truncated"), "{}", broken.err);
    assert!("the ".starts_with(&broken.out), "{}", broken.out);
    assert_eq!(origin.count("/breaks"), 1);
}

#[test]
fn responses_accepted_without_a_certificate_are_used_by_insecure_requests_only() {
    let origin = Origin::start();
    let page = |body| Reply::ok(&["Cache-Control: max-age=600"], body);
    origin
        .on("/page")
        .reply(page("of anybody"))
        .reply(page("of the server"));
    let certificate = CertificateFile::new(&["localhost"]);
    let tls = [
        "--tls",
        certificate.name(),
        "--tls-listen",
        "127.0.0.1:0",
        "--pass",
    ];
    let proxy = Proxy::start(&origin, &tls);
    let url = format!("https://localhost:{}/page", proxy.tls_address().port());
    let place = Place::new();
    let unknown = place.run(&[&url]);
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    for outcome in ["miss: ", "hit: "] {
        let believed = place.run(&["-k", "--explain", &url]);
        assert_eq!(believed.out, "of anybody", "{}", believed.err);
        assert!(believed.err.contains(outcome), "{}", believed.err);
    }
    for flags in [
        &[][..],
        &["--offline"],
        &["--offline", "--cacert", certificate.name()],
        &["--offline", "-H", "X-Api-Key: a"],
    ] {
        let run = place.run(&[flags, &[&url]].concat());
        assert!(run.code > 0 && run.out.is_empty(), "{flags:?}: {}", run.out);
    }
    let checked = place.run(&["--cacert", certificate.name(), &url]);
    assert_eq!(checked.out, "of the server", "{}", checked.err);
    assert_eq!(place.run(&[&url]).out, "of the server");
    assert_eq!(place.run(&["-k", &url]).out, "of anybody");
}

#[test]
fn unsafe_methods_pass_and_invalidate() {
    let origin = Origin::start();
    let mut requested = 0;
    origin.on("/page").answer(move |seen| {
        requested += 1;
        let page = Reply::new(200).with("Cache-Control: max-age=600");
        page.body(format!("{} {requested}", seen.method))
    });
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let bodies = |flags: &[&str]| place.run(&[flags, &[&url]].concat()).out;
    assert_eq!(bodies(&[]), "GET 1");
    assert_eq!(bodies(&["-k"]), "GET 2");
    assert_eq!(bodies(&[]), "GET 1");
    let explained = place.run(&["--explain", "-d", "a=1", "-d", "b=2", &url]);
    assert_eq!(explained.out, "POST 3");
    assert!(explained.err.contains("bypass: "), "{}", explained.err);
    assert!(explained.err.contains("(POST)"), "{}", explained.err);
    let sent = &origin.seen("/page")[2];
    assert_eq!(sent.body(), b"a=1&b=2");
    let form = "application/x-www-form-urlencoded";
    assert_eq!(sent.field("content-type"), Some(form));
    for flags in [&[][..], &["-k"]] {
        let offline = place.run(&[flags, &["--offline", &url]].concat());
        assert_eq!((offline.code, offline.out.as_str()), (3, ""));
    }
    assert_eq!(bodies(&[]), "GET 4");
    assert_eq!(bodies(&["-k"]), "GET 5");
    fs::write(place.path("sent"), "{\n}\n").expect("written");
    let json = "Content-Type: application/json";
    let put = ["-X", "PUT", "-H", json, "-d", "@sent"];
    assert_eq!(bodies(&put), "PUT 6");
    assert_eq!(origin.seen("/page")[5].body(), b"{}");
    assert_eq!(bodies(&["-X", "DELETE"]), "DELETE 7");
    assert_eq!(bodies(&["-X", "GET"]), "GET 8");
}

/// A proxy that tunnels, and what it was asked.
fn tunnel(to: SocketAddr) -> (SocketAddr, mpsc::Receiver<String>) {
    let (requested, heads) = mpsc::channel();
    let address = listen(move |mut client| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        let is_open = requested.send(String::from_utf8_lossy(&head).into_owned());
        if is_open.is_err() || !head.starts_with(b"CONNECT ") {
            return;
        }
        let mut server = TcpStream::connect(to).expect("a connection");
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("sent");
        let (mut up, mut down) = (
            client.try_clone().expect("a handle"),
            server.try_clone().expect("a handle"),
        );
        thread::spawn(move || {
            let _ = std::io::copy(&mut up, &mut server);
            let _ = server.shutdown(Shutdown::Write);
        });
        thread::spawn(move || std::io::copy(&mut down, &mut client));
    });
    (address, heads)
}

#[test]
fn requests_go_by_the_proxy_that_is_named() {
    let web = Origin::start();
    let target = "http://elsewhere.test/page";
    web.on(target).reply(Reply::new(200).body("by the proxy"));
    let place = Place::new();
    let proxy = web.url().replace("//", "//me:hush@");
    let by_proxy = |flags: &[&str], no_proxy: Option<&str>| {
        let mut command = place.command(flags);
        command.env_remove("no_proxy");
        if let Some(list) = no_proxy {
            command.env("NO_PROXY", list);
        }
        printed(command.output().expect("it runs"))
    };
    let bare = proxy.trim_start_matches("http://");
    for proxy in [&proxy[..], bare] {
        let run = by_proxy(&["-v", "-x", proxy, target], None);
        assert_eq!(run.out, "by the proxy", "{}", run.err);
        assert!(!run.err.contains("hush"), "{}", run.err);
    }
    let seen = &web.seen(target)[0];
    assert_eq!(
        seen.field("proxy-authorization"),
        Some("Basic bWU6aHVzaA==")
    );
    // A list of exceptions counts for the flag too, and `*` is all.
    let origin = origin_with_page();
    let url = format!("{}/page", origin.url());
    for list in ["*", "127.0.0.1", "localhost, 127.0.0.0/8"] {
        let direct = by_proxy(&["--no-store", "-x", &proxy, &url], Some(list));
        assert_eq!(direct.out, "the page", "{list}: {}", direct.err);
    }
    assert_eq!(origin.count("/page"), 3);
    let unreached = by_proxy(&["-x", "http://me:hush@127.0.0.1:1", target], None);
    assert_eq!(unreached.code, 1);
    assert!(!unreached.err.contains("hush"), "{}", unreached.err);

    let certificate = CertificateFile::new(&["localhost"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let server = Proxy::start(&origin, &tls);
    let (tunnel, heads) = tunnel(server.tls_address());
    let by_tunnel = format!("http://me:hush@{tunnel}");
    let secure = "https://localhost:1/page";
    let flags = ["-x", &by_tunnel, "--cacert", certificate.name(), secure];
    let run = by_proxy(&flags, None);
    assert_eq!(run.out, "the page", "{}", run.err);
    let head = heads.recv().expect("it was asked");
    assert!(
        head.starts_with("CONNECT localhost:1 HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.to_lowercase().contains("proxy-authorization: "),
        "{head}"
    );
}

#[test]
fn the_proxies_of_the_environment_have_exceptions() {
    let origin = origin_with_page();
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let run = |variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = place.command(&[flags, &["--no-store", &url]].concat());
        command.env_remove("no_proxy");
        command.envs(variables.iter().copied());
        printed(command.output().expect("it runs"))
    };
    let nowhere = ("http_proxy", "http://me:hush@127.0.0.1:1");
    let lost = run(&[nowhere], &[]);
    assert_eq!(lost.code, 1);
    assert!(!lost.err.contains("hush"), "{}", lost.err);
    for exception in [
        ("NO_PROXY", "*"),
        ("no_proxy", "*"),
        ("NO_PROXY", " * "),
        ("no_proxy", "example.org,127.0.0.1"),
    ] {
        let direct = run(&[nowhere, exception], &[]);
        assert_eq!(direct.out, "the page", "{exception:?}: {}", direct.err);
    }
    assert_eq!(run(&[nowhere], &["-x", ""]).out, "the page");
}

#[test]
fn credentials_of_flags_do_not_go_along_to_another_host() {
    let (origin, other) = (Origin::start(), Origin::start());
    let away = format!("Location: {}/there", other.url());
    origin
        .on("/away")
        .reply(Reply::new(307).with(&away).body(""));
    other.on("/there").reply(Reply::new(200).body("there"));
    let place = Place::new();
    let url = format!("{}/away", origin.url());
    for flags in [&["-u", "me:hush"][..], &["-d", "a=1", "-u", "me:hush"]] {
        let run = place.run(&[flags, &[&url]].concat());
        assert_eq!(run.out, "there", "{}", run.err);
    }
    for seen in origin.seen("/away") {
        assert!(seen.field("authorization").is_some());
    }
    for seen in other.seen("/there") {
        assert_eq!(seen.field("authorization"), None);
    }
}

#[test]
fn a_hostile_server_is_given_up() {
    let origin = Origin::start();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(20_000);
    origin.on("/interim").reply(Reply::raw(interim).hold());
    let endless = Reply::raw("HTTP/1.1 200 OK\r\nX: ").flood(1_000_000_000);
    origin.on("/head").reply(endless);
    let fields = (0..100_000).fold(String::new(), |fields, number| {
        fields + "X-" + &number.to_string() + ": a\r\n"
    });
    let many = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    origin.on("/fields").reply(Reply::raw(many));
    let place = Place::new();
    for (target, flags) in [
        ("/interim", &["-m", "1"][..]),
        ("/head", &["-v"]),
        ("/fields", &["-v"]),
    ] {
        let url = format!("{}{target}", origin.url());
        let run = place.run(&[flags, &[&url]].concat());
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{}", run.err);
        assert!(run.err.lines().count() < 10, "{}", run.err);
    }
}

#[test]
fn offline_sends_no_request() {
    let origin = origin_with_page();
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let there = origin.url().replace("//", "//me:hush@");
    let away = format!("Location: {there}/page");
    let away = Reply::new(302).with_all(&["Cache-Control: max-age=600", &away]);
    origin.on("/away").reply(away.body(""));
    let first = format!("{}/away", origin.url());
    assert_eq!(place.run(&[&first]).out, "the page");
    let requested = origin.requests().len();
    for flags in [
        &["-H", "Expect: 100-continue", &url][..],
        &["-H", "Upgrade: x", "-H", "Connection: upgrade", &url],
        &[&first],
    ] {
        let run = place.run(&[&["--offline"][..], flags].concat());
        assert_eq!((run.code, run.out.as_str()), (3, ""), "{}", run.err);
    }
    assert_eq!(origin.requests().len(), requested);
}
