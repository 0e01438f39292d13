//! Clients that others have written.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use super::{FRESH, start};
use crate::support::{CertificateFile, Origin, Proxy, Reply, browser_turn, left_out};

/// What the program says, or nothing if it is not there.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    if output.is_err() {
        left_out(&format!("HTTP/2 with {program}, which is not installed"));
    }
    output.ok()
}

fn site() -> (Origin, Proxy, String) {
    let (origin, proxy) = start();
    let body = "x".repeat(672_864);
    origin
        .on("/large")
        .reply(Reply::new(200).with(FRESH).body(&body));
    origin
        .on("/passed")
        .reply(Reply::new(200).with("Cache-Control: no-store").body(&body));
    origin.on("/upload").reply(Reply::new(200).body("taken"));
    let url = format!("http://{}", proxy.address());
    (origin, proxy, url)
}

#[test]
fn curl_downloads_and_uploads() {
    let (origin, _proxy, url) = site();
    let written = "%{http_version} %{http_code} %{size_download}\n";
    let targets = ["/large", "/large", "/passed"].map(|target| format!("{url}{target}"));
    for target in &targets {
        let arguments = [
            "-sS",
            "--http2-prior-knowledge",
            "-o",
            "/dev/null",
            "-w",
            written,
            target,
        ];
        let Some(output) = run("curl", &arguments) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "2 200 672864\n", "{output:?}");
    }
    assert_eq!((origin.count("/large"), origin.count("/passed")), (1, 1));
    let target = format!("{url}/upload");
    let content = "y".repeat(100_000);
    let arguments = [
        "-sS",
        "--http2-prior-knowledge",
        "-H",
        "Expect: 100-continue",
        "-d",
        &content,
        &target,
    ];
    let output = run("curl", &arguments).expect("it was there");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "taken",
        "{output:?}"
    );
    assert!(origin.wait_for("/upload", 1).body() == content.as_bytes());
}

#[test]
fn curl_agrees_on_it_by_tls() {
    let origin = Origin::start();
    let body = "x".repeat(672_864);
    origin
        .on("/large")
        .reply(Reply::new(200).with(FRESH).body(&body));
    let certificate = CertificateFile::new(&["example.com"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &tls);
    let url = format!("https://{}/large", proxy.tls_address());
    let written = "%{http_version} %{http_code} %{size_download}\n";
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1"), ("--http2", "2")] {
        let arguments = ["-sSk", flag, "-o", "/dev/null", "-w", written, &url];
        let Some(output) = run("curl", &arguments) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, format!("{version} 200 672864\n"), "{output:?}");
    }
    assert_eq!(origin.count("/large"), 1);
}

#[test]
fn a_connection_serves_the_hosts_of_its_certificate_with_the_scheme_https() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    let certificate = CertificateFile::new(&["a.example", "*.b.example"]);
    let policy = "max-age=60";
    let flags = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let strict = ["--strict-transport-security", policy];
    let proxy = Proxy::start(&origin, &[&flags[..], &strict].concat());
    let address = proxy.tls_address();
    let ask = |name: &str, host: &str| {
        let port = address.port();
        let (url, to) = (
            format!("https://{name}:{port}/"),
            format!("{name}:{port}:127.0.0.1"),
        );
        let host = format!("Host: {host}");
        let arguments = [
            "-sSk",
            "--http2",
            "-D",
            "-",
            "--resolve",
            &to,
            "-H",
            &host,
            &url,
        ];
        run("curl", &arguments).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for (name, host, status) in [
        ("a.example", "a.example", 200),
        ("a.example", "A.Example:8443", 200),
        ("a.example", "x.b.example", 200),
        ("x.b.example", "a.example", 200),
        ("a.example", "b.example", 421),
        ("a.example", "other.example", 421),
        ("a.example", "127.0.0.1", 421),
        // A client that has accepted a certificate for another host may go on.
        ("other.example", "b.example", 200),
    ] {
        let Some(said) = ask(name, host) else {
            return;
        };
        assert!(
            said.starts_with(&format!("HTTP/2 {status} ")),
            "{name}, {host}: {said}"
        );
        assert!(
            said.contains(&format!("strict-transport-security: {policy}")),
            "{said}"
        );
    }
}

#[test]
fn nghttp_asks_for_many_at_once_and_h2load_for_more() {
    let (origin, _proxy, url) = site();
    origin
        .on("/page")
        .reply(Reply::new(200).with(FRESH).body("p".repeat(1000)));
    let (large, page) = (format!("{url}/large"), format!("{url}/page"));
    let Some(output) = run("nghttp", &["-ns", &large, &page]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches(" 200 ").count(), 2, "{said}");
    let load = ["-n", "20000", "-c", "10", "-m", "32", &page];
    let output = run("h2load", &load).expect("it comes with nghttp");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("20000 succeeded, 0 failed, 0 errored, 0 timeout"),
        "{said}"
    );
    assert_eq!(origin.count("/page"), 1);
}

/// Go's net/http, Java's `HttpClient` and httpx of Python ask for the same by TLS, many at a time, and send something.
#[test]
fn clients_of_other_languages_agree_on_it_by_tls() {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/h2clients");
    for (program, file) in [
        ("go", &["run", "client.go"][..]),
        ("java", &["Client.java"]),
        ("/usr/bin/python3", &["client.py"]),
    ] {
        let origin = Origin::start();
        for (target, length) in [("/page", 1000), ("/large", 672_864)] {
            let body = "x".repeat(length);
            origin
                .on(target)
                .reply(Reply::new(200).with(FRESH).body(&body));
        }
        origin.on("/upload").reply(Reply::new(200).body("taken"));
        let certificate = CertificateFile::new(&["localhost"]);
        let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
        let proxy = Proxy::start(&origin, &tls);
        let url = format!("https://localhost:{}", proxy.tls_address().port());
        let output = Command::new(program)
            .current_dir(programs)
            .env("GOTOOLCHAIN", "local")
            .args(file)
            .args([certificate.name(), &url])
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else {
            left_out(&format!("HTTP/2 with {program}, which is not installed"));
            continue;
        };
        if String::from_utf8_lossy(&output.stderr).contains("ModuleNotFoundError") {
            left_out("HTTP/2 with httpx, which is not installed");
            continue;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let wanted = "page HTTP/2.0 200 1000 times 200\nlarge HTTP/2.0 200 672864\nlarge HTTP/2.0 200 672864\nupload HTTP/2.0 200 taken\n";
        assert_eq!(said, wanted, "{program}: {output:?}");
        assert_eq!((origin.count("/page"), origin.count("/large")), (1, 1));
        assert_eq!(origin.wait_for("/upload", 1).body().len(), 300_000);
    }
}

/// A page that asks for fifty others and says how they came.
#[test]
fn chromium_agrees_on_it_by_tls() {
    let origin = Origin::start();
    let page = "<p id=p></p><script type=module>
        const pages = Array.from({length: 50}, (_, n) => fetch('/page?' + n).then(answer => answer.text()));
        const bodies = await Promise.all(pages);
        const seen = performance.getEntriesByType('resource').map(one => one.nextHopProtocol);
        document.getElementById('p').textContent = [...new Set(seen), bodies.join('').length].join(' ');
        </script>";
    let html = Reply::new(200).with(FRESH).with("Content-Type: text/html");
    origin.on("/").reply(html.body(page));
    for number in 0..50 {
        let reply = Reply::new(200).with(FRESH).body("x".repeat(1000));
        origin.on(&format!("/page?{number}")).reply(reply);
    }
    let certificate = CertificateFile::new(&["localhost"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &tls);
    let url = format!("https://localhost:{}/", proxy.tls_address().port());
    let profile = certificate.path().with_extension("chromium");
    let profile = format!("--user-data-dir={}", profile.display());
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--ignore-certificate-errors",
        "--virtual-time-budget=10000",
        &profile,
        "--dump-dom",
        &url,
    ];
    let _turn = browser_turn();
    let Some(output) = run("chromium", &arguments) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("<p id=\"p\">h2 50000</p>"), "{output:?}");
}

/// Every case of h2spec, which comes from the registry of Go's modules. One expects that what is no
/// preface gets no answer: here it is HTTP/1, and is answered as that.
#[test]
fn h2spec_passes() {
    let (_origin, proxy, _) = site();
    let program = std::env::var("H2SPEC").unwrap_or_else(|_| "h2spec".to_owned());
    let port = proxy.address().port().to_string();
    let arguments = ["-h", "127.0.0.1", "-p", &port, "-P", "/large", "-o", "5"];
    let Some(output) = run(&program, &arguments) else {
        return;
    };
    let mut said = String::new();
    output
        .stdout
        .as_slice()
        .read_to_string(&mut said)
        .expect("text");
    assert!(
        said.contains("145 tests, 144 passed, 0 skipped, 1 failed"),
        "{said}"
    );
    assert!(
        said.contains("\u{d7} 2: Sends invalid connection preface"),
        "{said}"
    );
}
