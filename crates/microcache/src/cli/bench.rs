//! The command line of `microcache bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use microcache_bench::load::subscribe::{
    DocumentTemplate, PublishSettings, StreamKind, SubscribeSettings,
};
use microcache_bench::load::{
    CertificateTrust, Format, LoadProtocol, LoadTarget, RequestPace, Settings, TargetUrl,
    Threshold, UrlOrder, duration, header, method, url_file,
};

use super::help::Layout;
use super::{Message, file, switch, texts};

/// A load, and the output of its report.
#[derive(Debug, PartialEq)]
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    /// Event streams, in place of requests.
    pub(crate) subscribe: Option<SubscribeSettings>,
    pub(crate) format: Format,
    pub(crate) hgrm: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) thresholds: Vec<Threshold>,
}

const EXAMPLES: &str = "\
microcache bench http://localhost:8080/ -c 64 -d 30s
microcache bench http://localhost:8080/ --rate 2000 --fail-if 'p99>50ms'
microcache bench --urls urls.txt --users 3000 --think 0s..10s --html out.html
microcache bench --subscribe 1000 --publish 100ms \\
    -H 'Authorization: Bearer SECRET' http://localhost:8080/live/x";

const NOTES: &str = "\
URLs may contain ranges: http://localhost:8080/page/[1-5000]. Durations are
500ms, 10s, 2m. Latency is reported as p50, p90, p99 and maximum.
Exit status: 0 if it succeeded, 1 if a --fail-if condition holds, 2 if nothing
could be measured.";

pub(super) fn command() -> Command {
    let headed = |heading: &'static str, flags: Vec<Arg>| {
        flags.into_iter().map(move |arg| arg.help_heading(heading))
    };
    let command = Command::new("bench")
        .about("Generate load and measure latency (p50, p99), throughput and hit ratio")
        .disable_version_flag(true)
        .arg(Arg::new("URL").num_args(0..).hide(true))
        .args(headed("Load", load_flags()))
        .args(headed("Connections", connection_flags()))
        .args(headed("Requests", request_flags()))
        .args(headed("Event streams", stream_flags()))
        .args(headed("Report", report_flags()));
    let layout = Layout {
        usage: "microcache bench [FLAGS] URL...",
        examples: EXAMPLES,
        notes: NOTES,
    };
    layout.apply(command)
}

fn load_flags() -> Vec<Arg> {
    vec![
        flag("connections", Some('c'), "N").help("Concurrent connections [10]"),
        flag("threads", Some('t'), "N").help("Threads [one per core, at most 4]"),
        flag("duration", Some('d'), "DURATION").help("Duration [10s, without -n]"),
        flag("requests", Some('n'), "N")
            .help("Number of requests, or of publications with --publish"),
        flag("rate", None, "N").help(
            "Requests per second, independent of the server (open loop); latency counts from the scheduled start",
        ),
        flag("users", None, "N")
            .conflicts_with_all(["connections", "rate"])
            .help("Users, each with think time between requests"),
        flag("think", None, "FROM..TO").help("Think time of users [0s..10s]"),
        flag("warmup", None, "DURATION").help("Load before the measurement [0s]"),
        flag("timeout", None, "DURATION").help("Timeout of a request [10s]"),
        flag("seed", None, "N").help("Seed of URLs and think times [1]"),
    ]
}

fn connection_flags() -> Vec<Arg> {
    vec![
        switch("no-keepalive").help("A new connection per request (no keep-alive)"),
        switch("http2").help("HTTP/2: by ALPN on https, with prior knowledge on http"),
        flag("streams", None, "N")
            .requires("http2")
            .help("Concurrent streams per HTTP/2 connection [1]"),
        switch("insecure").help("Accept any certificate"),
        flag("cacert", None, "FILE")
            .value_parser(value_parser!(PathBuf))
            .conflicts_with("insecure")
            .help("CA certificates to verify the server (PEM)"),
    ]
}

fn request_flags() -> Vec<Arg> {
    vec![
        flag("urls", Some('f'), "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("URLs in siege's syntax: URL, URL POST BODY, NAME=value and $(NAME), #"),
        flag("choose", None, "ORDER")
            .help("Order of URLs: sequential, uniform, zipf:EXPONENT [sequential]"),
        flag("header", Some('H'), "FIELD")
            .action(ArgAction::Append)
            .help("Header field, such as 'Accept: text/html'"),
        flag("method", Some('m'), "METHOD").help("Method [GET, or POST with --data]"),
        flag("data", None, "BODY").help("Request body"),
    ]
}

/// The flags that exclude streams.
const OF_REQUESTS: [&str; 16] = [
    "connections",
    "rate",
    "users",
    "think",
    "seed",
    "no-keepalive",
    "http2",
    "urls",
    "choose",
    "method",
    "data",
    "html",
    "hgrm",
    "origin-counter",
    "fail-if",
    "streams",
];

/// The flags that require streams, and those that require publications.
const OF_STREAMS: [&str; 2] = ["publish", "stalled"];
const OF_PUBLISHING: [&str; 4] = [
    "publish-url",
    "publish-method",
    "publish-data",
    "publish-size",
];

fn stream_flags() -> Vec<Arg> {
    vec![
        flag("subscribe", None, "N")
            .conflicts_with_all(OF_REQUESTS)
            .help("Event streams (WebSockets on ws://) in place of requests; measures delivery latency"),
        flag("publish", None, "DURATION")
            .help("Interval of publications, such as 100ms; authorized by -H"),
        flag("publish-url", None, "URL").help("URL to publish to [the URL of the streams]"),
        flag("publish-method", None, "METHOD").help("Method to publish with [PUT]"),
        flag("publish-data", None, "TEXT").help(
            r#"Document; {event} becomes a word that each stream looks for [{"bench":"{event}"}]"#,
        ),
        flag("publish-size", None, "BYTES")
            .help("Size of the document; the word is padded to fill it [200]"),
        flag("stalled", None, "PERCENT")
            .help("Share of streams that stop reading after their first event [0]"),
    ]
}

fn report_flags() -> Vec<Arg> {
    vec![
        flag("format", None, "FORMAT").help("own, ab, siege, wrk, json or csv [own]"),
        flag("html", None, "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Also write a web page with latency distribution and time line"),
        flag("hgrm", None, "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Also write the latency distribution for HdrHistogram plotters"),
        flag("origin-counter", None, "URL")
            .help("URL of the origin's request counter: a number, or JSON with `requests`"),
        flag("fail-if", None, "CONDITION")
            .action(ArgAction::Append)
            .help("Condition for exit status 1, such as 'p99>50ms' or 'hit-ratio<95%'"),
    ]
}

fn flag(name: &'static str, short: Option<char>, value: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value);
    match short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

pub(super) fn read(matches: &ArgMatches) -> Result<Bench, Message> {
    bench(matches).map_err(|why| Message::Wrong(format!("bench: {why}")))
}

fn bench(matches: &ArgMatches) -> Result<Bench, String> {
    let mut settings = Settings::new(targets(matches)?);
    load(matches, &mut settings)?;
    transport(matches, &mut settings)?;
    let subscribe = subscribe(matches, &settings)?;
    let format = format(matches)?;
    if subscribe.is_some() && !matches!(format, Format::Tables | Format::Json) {
        return Err("--format: streams are reported as own or json only".to_owned());
    }
    settings.origin_counter = text(matches, "origin-counter")
        .map(|url| TargetUrl::parse(url))
        .transpose()
        .map_err(|why| format!("--origin-counter: {why}"))?;
    let thresholds = texts(matches, "fail-if")
        .iter()
        .map(|text| Threshold::parse(text).map_err(|why| format!("--fail-if: {why}")))
        .collect::<Result<Vec<_>, _>>()?;
    if settings.origin_counter.is_none() && thresholds.iter().any(Threshold::needs_origin) {
        return Err("--fail-if: origin-requests needs --origin-counter URL".to_owned());
    }
    Ok(Bench {
        settings,
        subscribe,
        format,
        hgrm: file(matches, "hgrm"),
        html: file(matches, "html"),
        thresholds,
    })
}

fn targets(matches: &ArgMatches) -> Result<Vec<LoadTarget>, String> {
    let mut targets = Vec::new();
    for url in texts(matches, "URL") {
        let url = match websocket(matches, &url) {
            Some(http) => TargetUrl::parse(&http)?,
            None => TargetUrl::parse(&url)?,
        };
        targets.push(LoadTarget::get(url));
    }
    let data = text(matches, "data").map(String::as_bytes);
    let given = text(matches, "method")
        .map(|word| method(word).map_err(|why| format!("--method: {why}")))
        .transpose()?;
    for target in &mut targets {
        if let Some(data) = data {
            target.body = data.to_vec();
        }
        let usual = if data.is_some() { "POST" } else { "GET" };
        given
            .as_deref()
            .unwrap_or(usual)
            .clone_into(&mut target.method);
    }
    if let Some(file) = file(matches, "urls") {
        targets.extend(url_file::read(&file)?);
    }
    if targets.is_empty() {
        return Err("no URL; type it, such as: microcache bench http://localhost:8080/".to_owned());
    }
    Ok(targets)
}

/// Returns the `http` URL of a WebSocket to subscribe to.
fn websocket(matches: &ArgMatches, url: &str) -> Option<String> {
    text(matches, "subscribe")?;
    let is_websocket = url.starts_with("ws://") || url.starts_with("wss://");
    is_websocket.then(|| url.replacen("ws", "http", 1))
}

fn load(matches: &ArgMatches, settings: &mut Settings) -> Result<(), String> {
    if let Some(connections) = count(matches, "connections")? {
        settings.connections = connections;
    }
    if let Some(rate) = number::<f64>(matches, "rate", "a number such as 2000")? {
        settings.pace = RequestPace::Rate(rate);
    }
    let think = text(matches, "think");
    if let Some(users) = count(matches, "users")? {
        settings.connections = users;
        let think = think.map_or("0s..10s", String::as_str);
        settings.pace = RequestPace::think(think).map_err(|why| format!("--think: {why}"))?;
    } else if think.is_some() {
        return Err("--think needs users; add --users N".to_owned());
    }
    settings.threads = match count(matches, "threads")? {
        Some(threads) => threads,
        None => {
            std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_THREADS))
        }
    };
    settings.requests = count(matches, "requests")?.map(|requests| requests as u64);
    if let Some(duration) = time(matches, "duration")? {
        settings.duration = Some(duration);
    } else if settings.requests.is_some() {
        settings.duration = None;
    }
    if let Some(timeout) = time(matches, "timeout")? {
        settings.timeout = timeout;
    }
    settings.warmup = time(matches, "warmup")?.unwrap_or(Duration::ZERO);
    if let Some(seed) = number(matches, "seed", "a number from 0")? {
        settings.seed = seed;
    }
    if let Some(choice) = text(matches, "choose") {
        settings.choice = choice
            .parse::<UrlOrder>()
            .map_err(|why| format!("--choose: {why}"))?;
    }
    Ok(())
}

/// The maximum number of threads without -t.
const MOST_THREADS: usize = 4;

fn transport(matches: &ArgMatches, settings: &mut Settings) -> Result<(), String> {
    settings.keep_alive = !matches.get_flag("no-keepalive");
    for field in texts(matches, "header") {
        let field = header(&field).map_err(|why| format!("--header: {why}"))?;
        settings.headers.push(field);
    }
    if matches.get_flag("http2") {
        let streams = count(matches, "streams")?.unwrap_or(1);
        settings.protocol = LoadProtocol::Http2 { streams };
    }
    settings.trust = match file(matches, "cacert") {
        _ if matches.get_flag("insecure") => CertificateTrust::Any,
        Some(file) => CertificateTrust::File(file),
        None => CertificateTrust::System,
    };
    Ok(())
}

fn subscribe(
    matches: &ArgMatches,
    settings: &Settings,
) -> Result<Option<SubscribeSettings>, String> {
    let given = |name: &&str| text(matches, name).is_some();
    let Some(streams) = count(matches, "subscribe")? else {
        return match OF_STREAMS
            .iter()
            .chain(&OF_PUBLISHING)
            .find(|name| given(name))
        {
            Some(name) => Err(format!("--{name} needs streams; add --subscribe N")),
            None => Ok(None),
        };
    };
    let [target] = &settings.targets[..] else {
        return Err("--subscribe: all streams share one URL; type exactly one".to_owned());
    };
    if target.url.count() > 1 {
        return Err("--subscribe: all streams share one URL; type one without a range".to_owned());
    }
    let is_websocket = |url: &String| websocket(matches, url).is_some();
    let kind = if texts(matches, "URL").iter().any(is_websocket) {
        StreamKind::WebSocket
    } else {
        StreamKind::Events
    };
    let every = time(matches, "publish")?;
    if let Some(name) = OF_PUBLISHING
        .iter()
        .find(|name| every.is_none() && given(name))
    {
        return Err(format!(
            "--{name} needs an interval; add --publish DURATION"
        ));
    }
    let publish = every
        .map(|every| publish(matches, every, &target.url))
        .transpose()?;
    Ok(Some(SubscribeSettings {
        streams,
        kind,
        stalled: stalled(matches)?,
        publish,
    }))
}

/// The default document.
const DOCUMENT: &str = r#"{"bench":"{event}"}"#;
const DOCUMENT_SIZE: usize = 200;

fn publish(
    matches: &ArgMatches,
    every: Duration,
    streams: &TargetUrl,
) -> Result<PublishSettings, String> {
    let url = match text(matches, "publish-url") {
        Some(url) => TargetUrl::parse(url).map_err(|why| format!("--publish-url: {why}"))?,
        None => streams.clone(),
    };
    let word = text(matches, "publish-method").map_or("PUT", String::as_str);
    let size = count(matches, "publish-size")?.unwrap_or(DOCUMENT_SIZE);
    let data = text(matches, "publish-data").map_or(DOCUMENT, String::as_str);
    Ok(PublishSettings {
        every,
        url,
        method: method(word).map_err(|why| format!("--publish-method: {why}"))?,
        document: DocumentTemplate::new(data, size)
            .map_err(|why| format!("--publish-data: {why}"))?,
    })
}

fn stalled(matches: &ArgMatches) -> Result<f64, String> {
    let Some(word) = text(matches, "stalled") else {
        return Ok(0.0);
    };
    let percent = word.strip_suffix('%').unwrap_or(word).parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("--stalled: expected a number from 0 to 100, found `{word}`"))
}

fn format(matches: &ArgMatches) -> Result<Format, String> {
    let Some(word) = text(matches, "format") else {
        return Ok(Format::Tables);
    };
    let known = Format::ALL.iter().find(|(name, _)| name == word);
    known.map(|(_, format)| *format).ok_or_else(|| {
        let names = Format::ALL.map(|(name, _)| name).join(", ");
        format!("--format: unknown format `{word}`; use one of {names}")
    })
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a String> {
    matches.get_one::<String>(name)
}

fn time(matches: &ArgMatches, name: &str) -> Result<Option<Duration>, String> {
    text(matches, name)
        .map(|word| match duration(word) {
            Ok(time) if time.is_zero() => Err(format!("--{name}: it must be more than zero")),
            Ok(time) => Ok(time),
            Err(why) => Err(format!("--{name}: {why}")),
        })
        .transpose()
}

fn count(matches: &ArgMatches, name: &str) -> Result<Option<usize>, String> {
    let expected = "a number from 1";
    match number(matches, name, expected)? {
        Some(0) => Err(format!("--{name}: expected {expected}, found 0")),
        count => Ok(count),
    }
}

fn number<N: std::str::FromStr>(
    matches: &ArgMatches,
    name: &str,
    expected: &str,
) -> Result<Option<N>, String> {
    text(matches, name)
        .map(|word| {
            word.parse()
                .map_err(|_| format!("--{name}: expected {expected}, found `{word}`"))
        })
        .transpose()
}
