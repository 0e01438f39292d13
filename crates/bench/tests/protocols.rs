//! Load generator with TLS and HTTP/2, against servers that count requests.

#[path = "protocols/server.rs"]
mod server;

use std::time::Duration;

use microcache_bench::load::{
    self, BenchReport, CacheOutcome, CertificateTrust, LoadError, LoadProtocol, LoadTarget,
    RequestFault, RequestPace, Settings, TargetUrl,
};
use microcache_testkit::Folder;
use server::{Server, Spoken};

const HTTP1: LoadProtocol = LoadProtocol::Http1;
const HTTP2: LoadProtocol = LoadProtocol::Http2 { streams: 4 };

fn settings(server: &Server, protocol: LoadProtocol) -> Settings {
    let url = TargetUrl::parse(&server.url("/page/[1-10]")).expect("a url");
    let mut settings = Settings::new(vec![LoadTarget::get(url)]);
    settings.protocol = protocol;
    settings.connections = 3;
    settings.threads = 2;
    settings.duration = None;
    settings.requests = Some(300);
    settings
}

fn run(settings: &Settings) -> Result<BenchReport, LoadError> {
    load::run(settings, &mut |_| ())
}

/// Every request gets a response, and the server has counted as many.
fn check(spoken: Spoken, protocol: LoadProtocol) {
    let server = Server::start(spoken);
    let folder = Folder::new();
    let authority = folder.write("ca.pem", server.certificate());
    let mut settings = settings(&server, protocol);
    settings.trust = CertificateTrust::File(authority.into());
    let report = run(&settings).expect("there is a report");
    assert_eq!(report.tally.answers(), 300, "{spoken:?}");
    assert_eq!(report.tally.faults(), 0, "{spoken:?}");
    assert_eq!(report.tally.count_of(CacheOutcome::Hit), 300, "{spoken:?}");
    assert_eq!(report.tally.connect().count(), 3, "{spoken:?}");
    assert_eq!(server.requests(), 300, "{spoken:?}");
    let least = 300 * Server::BODY.len() as u64;
    assert!(report.tally.bytes() > least, "{spoken:?}");
}

#[test]
fn every_request_is_answered_in_each_protocol() {
    check(Spoken::Http1Tls, HTTP1);
    check(Spoken::Http2Tls, HTTP2);
    check(Spoken::Http2, HTTP2);
}

#[test]
fn an_open_loop_keeps_its_rate_on_http2() {
    let server = Server::start(Spoken::Http2);
    let mut settings = settings(&server, HTTP2);
    settings.pace = RequestPace::Rate(200.0);
    settings.requests = None;
    settings.duration = Some(Duration::from_secs(1));
    let report = run(&settings).expect("there is a report");
    assert_eq!(report.tally.answers() + report.unsent, 200);
    assert_eq!(report.tally.answers(), server.requests());
}

#[test]
fn users_think_on_http2() {
    let server = Server::start(Spoken::Http2);
    let mut settings = settings(&server, LoadProtocol::Http2 { streams: 1 });
    let millis = Duration::from_millis;
    settings.pace = RequestPace::Think(millis(50), millis(150));
    settings.connections = 10;
    settings.requests = None;
    settings.duration = Some(Duration::from_secs(1));
    let report = run(&settings).expect("there is a report");
    let answers = report.tally.answers();
    assert!((30..=130).contains(&answers), "{answers}");
}

#[test]
fn a_body_is_sent_on_http2() {
    let server = Server::start(Spoken::Http2);
    let mut settings = settings(&server, HTTP2);
    settings.targets[0].method = "POST".to_owned();
    settings.targets[0].body = vec![b'x'; 200_000];
    settings.requests = Some(20);
    let report = run(&settings).expect("there is a report");
    assert_eq!(report.tally.answers(), 20);
    assert_eq!(server.received(), 20 * 200_000);
}

#[test]
fn an_untrusted_certificate_is_refused_and_reported() {
    let server = Server::start(Spoken::Http1Tls);
    let mut settings = settings(&server, HTTP1);
    let refused = run(&settings)
        .expect_err("nobody vouches for it")
        .to_string();
    // Without system CAs, the error is different.
    assert!(refused.contains("--insecure"), "{refused}");
    assert_eq!(server.requests(), 0);
    settings.trust = CertificateTrust::Any;
    let report = run(&settings).expect("there is a report");
    assert_eq!(report.tally.answers(), 300);
}

#[test]
fn a_server_without_http2_is_reported_before_the_load() {
    let server = Server::start(Spoken::Http1Tls);
    let mut settings = settings(&server, HTTP2);
    settings.trust = CertificateTrust::Any;
    let refused = run(&settings)
        .expect_err("it does not speak it")
        .to_string();
    assert!(
        refused.contains("TLS handshake failed") || refused.contains("does not support HTTP/2"),
        "{refused}"
    );
}

#[test]
fn a_server_without_http2_is_malformed_without_a_request_storm() {
    let server = Server::start(Spoken::Http1);
    let mut settings = settings(&server, HTTP2);
    settings.requests = None;
    settings.duration = Some(Duration::from_secs(1));
    let report = run(&settings).expect("there is a report");
    assert_eq!(report.tally.answers(), 0);
    let faults = report.tally.faults();
    assert!((1..200).contains(&faults), "{faults}");
    assert_eq!(report.tally.faults_of(RequestFault::Refused), 0);
}

#[test]
fn a_watcher_sees_every_answer_once() {
    let server = Server::start(Spoken::Http1);
    let mut settings = settings(&server, HTTP1);
    settings.slice = Duration::from_millis(50);
    let mut seen = 0;
    let report = load::run(&settings, &mut |progress| seen += progress.slice.answers());
    assert_eq!(seen, report.expect("there is a report").tally.answers());
    assert_eq!(seen, 300);
}
