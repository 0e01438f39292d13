//! Command line of `microcache fetch`.

mod request;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use http::Method;
use http::header::HeaderMap;
use microcache_proxy::config::units;
use reqwest::Url;

use super::help::Layout;
use super::{Message, file, switch, texts};

/// Default size of the cache directory, in bytes.
const CACHE_SIZE: u64 = 1 << 30;
const LEAST_CACHE_SIZE: u64 = 1 << 20;

/// Parsed command line of `microcache fetch`.
#[derive(Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each switch")]
pub(crate) struct Fetch {
    pub(crate) url: Url,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// The body of the request.
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) usage: Usage,
    /// Freshness lifetime that overrides the server's.
    pub(crate) max_age: Option<Duration>,
    pub(crate) shown: PrintedParts,
    /// Prints how the cache handled the request.
    pub(crate) explain: bool,
    /// Prints the heads of requests and responses.
    pub(crate) verbose: bool,
    /// Prints neither progress nor pauses.
    pub(crate) silent: bool,
    /// Prints the body of an error like any other.
    pub(crate) no_fail: bool,
    /// Output file of the body.
    pub(crate) output: Option<PathBuf>,
    /// Directory of the cache, if not the default.
    pub(crate) cache: Option<PathBuf>,
    pub(crate) cache_size: u64,
    pub(crate) timeout: Option<Duration>,
    /// Number of retries after transient failures.
    pub(crate) retries: u32,
    pub(crate) cacert: Option<PathBuf>,
    /// Accepts every certificate.
    pub(crate) insecure: bool,
    /// Proxy, if not that of the environment.
    pub(crate) proxy: Option<Proxy>,
}

/// Proxy to use.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Proxy {
    /// No proxy, overriding the environment.
    None,
    At(Url),
}

/// Use of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// As RFC 9111 specifies.
    Usual,
    Offline,
    Reload,
    NoCache,
    NoStore,
}

/// Flags for the use of the cache, mutually exclusive.
const USAGES: [(&str, Usage, &str); 4] = [
    (
        "offline",
        Usage::Offline,
        "Contact no server: use stored responses only, even stale ones unless their server forbids it",
    ),
    (
        "reload",
        Usage::Reload,
        "Ignore the stored response, and replace it",
    ),
    (
        "no-cache",
        Usage::NoCache,
        "Revalidate the stored response before use",
    ),
    (
        "no-store",
        Usage::NoStore,
        "Neither use nor store a response",
    ),
];

/// Parts of the response that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedParts {
    Body,
    /// Status and header first.
    HeadAndBody,
    /// Status and header only, of a HEAD request.
    Head,
}

/// Flags of `curl` that are accepted without effect.
const WITHOUT_EFFECT: [(&str, Option<char>, &str); 3] = [
    ("location", Some('L'), "Follow redirects (always the case)"),
    ("show-error", Some('S'), "Print errors (always the case)"),
    (
        "compressed",
        None,
        "Ignored: bodies are requested without compression",
    ),
];

const EXAMPLES: &str = "\
microcache fetch https://example.com/data.json
microcache fetch --max-age 1h -o tools.tar.gz https://example.com/tools.tar.gz
microcache fetch --offline --explain https://example.com/data.json";

const NOTES: &str = "\
Concurrent and later commands share the stored responses.
Durations are 500ms, 10s, 2m, 1d, or plain seconds; sizes 64MiB, 1GB. Proxies
come from the variables http_proxy, https_proxy and no_proxy, unless --proxy is
given.
Exit status: 0 success, 1 no or an incomplete response, 2 invalid command line,
3 --offline without a stored response, 4 the server answered with an error (400
or above), 5 the output cannot be written, 129, 130 or 143 ended by a signal.";

pub(super) fn command() -> Command {
    let headed = |heading: &'static str, flags: Vec<Arg>| {
        flags.into_iter().map(move |arg| arg.help_heading(heading))
    };
    let command = Command::new("fetch")
        .about("Fetch a URL through a cache that all commands share")
        .disable_version_flag(true)
        .arg(Arg::new("URL").num_args(0..).hide(true))
        .args(headed("Output", output_flags()))
        .args(headed("Cache", cache_flags()))
        .args(headed("Request", request::flags()))
        .args(headed("Connection", connection_flags()))
        .args(headed("Flags of curl without effect", flags_of_curl()));
    let layout = Layout {
        usage: "microcache fetch [FLAGS] URL",
        examples: EXAMPLES,
        notes: NOTES,
    };
    layout.apply(command)
}

fn output_flags() -> Vec<Arg> {
    vec![
        flag("output", Some('o'), "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Write the body to a file, which is renamed to FILE when complete [standard output]"),
        switch("remote-name")
            .short('O')
            .conflicts_with("output")
            .help("Write the body to a file named like the last segment of the URL"),
        switch("include")
            .short('i')
            .help("Print status and header before the body"),
        switch("head")
            .short('I')
            .conflicts_with("data")
            .help("Request and print status and header only (HEAD)"),
        switch("explain").help("Print on standard error what the cache did"),
        switch("verbose")
            .short('v')
            .help("Print on standard error the request (>), the response (<) and what the cache did (*)"),
        switch("silent")
            .short('s')
            .help("Print errors only: no progress, no retries"),
        switch("fail")
            .short('f')
            .conflicts_with("no-fail")
            .help("Print no body and exit with 4 on an error response (the default)"),
        switch("no-fail")
            .help("Print the body of an error response too, and exit with 0"),
    ]
}

fn flags_of_curl() -> Vec<Arg> {
    let flags = WITHOUT_EFFECT.map(|(name, short, help)| match short {
        Some(short) => switch(name).short(short).help(help),
        None => switch(name).help(help),
    });
    flags.into()
}

fn cache_flags() -> Vec<Arg> {
    let usages = USAGES.map(|(name, _, help)| {
        let others = USAGES.iter().map(|(other, ..)| *other);
        let others = others.filter(|other| *other != name);
        switch(name).conflicts_with_all(others).help(help)
    });
    let mut flags = Vec::from(usages);
    flags.extend([
        flag("max-age", None, "DURATION")
            .value_parser(duration)
            .help("Freshness lifetime of the fetched response, overriding its server [as its server says]"),
        flag("cache", None, "DIR")
            .value_parser(value_parser!(PathBuf))
            .help("Directory of the cache [microcache/fetch in $XDG_CACHE_HOME or in ~/.cache]"),
        flag("cache-size", None, "SIZE")
            .value_parser(size)
            .help("Capacity; the least recently used responses are evicted [1GiB]"),
    ]);
    flags
}

/// Flags of connection and TLS.
fn connection_flags() -> Vec<Arg> {
    vec![
        flag("timeout", Some('m'), "DURATION")
            .alias("max-time")
            .value_parser(duration)
            .help("Total time limit, retries included [none, but a minute without data]; --max-time"),
        flag("retry", None, "N")
            .value_parser(value_parser!(u32))
            .help("Retries after a failed connection, 408, 429, 500, 502, 503, 504: after 1s, 2s, 4s, ... 10m, or as \
                   Retry-After says [0]"),
        flag("proxy", Some('x'), "URL")
            .help("Send requests through this HTTP proxy, such as http://proxy:3128; '' for none [the environment's]"),
        flag("cacert", None, "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("CA certificates to verify the server, PEM [the system's]"),
        switch("insecure")
            .short('k')
            .conflicts_with("cacert")
            .help("Accept every certificate: anyone on the path can answer. Responses are stored for -k only"),
    ]
}

fn flag(name: &'static str, short: Option<char>, value: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).value_name(value);
    match short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

pub(super) fn read(matches: &ArgMatches) -> Result<Fetch, Message> {
    fetch(matches).map_err(|why| Message::Wrong(format!("fetch: {why}")))
}

fn fetch(matches: &ArgMatches) -> Result<Fetch, String> {
    let usage = USAGES.iter().find(|(name, ..)| matches.get_flag(name));
    let usage = usage.map_or(Usage::Usual, |(_, usage, _)| *usage);
    let url = url(&texts(matches, "URL"))?;
    let output = if matches.get_flag("remote-name") {
        Some(remote_name(&url)?)
    } else {
        file(matches, "output")
    };
    let method = request::method(matches)?;
    let is_read = matches!(method, Method::GET | Method::HEAD);
    if usage == Usage::Offline && (!is_read || request::has_data(matches)) {
        let what = "only responses to GET and HEAD without a body are stored";
        return Err(format!("--offline: {what}"));
    }
    Ok(Fetch {
        url,
        headers: request::headers(matches)?,
        data: request::data(matches)?,
        usage,
        max_age: matches.get_one("max-age").copied(),
        shown: match (method == Method::HEAD, matches.get_flag("include")) {
            (true, _) => PrintedParts::Head,
            (false, true) => PrintedParts::HeadAndBody,
            (false, false) => PrintedParts::Body,
        },
        method,
        explain: matches.get_flag("explain"),
        verbose: matches.get_flag("verbose"),
        silent: matches.get_flag("silent"),
        no_fail: matches.get_flag("no-fail"),
        output,
        cache: file(matches, "cache"),
        cache_size: matches.get_one("cache-size").copied().unwrap_or(CACHE_SIZE),
        timeout: matches.get_one("timeout").copied(),
        retries: matches.get_one("retry").copied().unwrap_or(0),
        cacert: file(matches, "cacert"),
        insecure: matches.get_flag("insecure"),
        proxy: request::proxy(matches)?,
    })
}

/// The name of the file that `-O` writes.
fn remote_name(url: &Url) -> Result<PathBuf, String> {
    let last = url.path_segments().and_then(Iterator::last);
    match last.filter(|name| !name.is_empty()) {
        Some(name) => Ok(name.into()),
        None => Err(format!("{url} has no file name for -O: use -o FILE")),
    }
}

fn url(typed: &[String]) -> Result<Url, String> {
    let text = match typed {
        [] => return Err("no URL; type: microcache fetch https://example.com/".to_owned()),
        [text] => text,
        [_, second, ..] => return Err(format!("only one URL is supported, found also `{second}`")),
    };
    let url = Url::parse(text);
    let url =
        url.map_err(|why| format!("`{text}` is not a URL ({why}); did you mean https://{text}?"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(format!(
            "`{text}` is not supported; use an https:// or http:// URL"
        )),
    }
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    // Plain seconds, as `curl` takes them.
    let seconds = || text.parse().ok().map(Duration::from_secs);
    units::parse_duration(text)
        .or_else(seconds)
        .filter(|duration| !duration.is_zero())
        .ok_or("expected a duration, such as 10s")
}

fn size(text: &str) -> Result<u64, String> {
    let size = units::parse_size(text);
    let size = size.ok_or_else(|| format!("expected {}", units::size_forms(text)))?;
    let least = "expected a size of at least 1MiB, such as 500MiB";
    (size >= LEAST_CACHE_SIZE)
        .then_some(size)
        .ok_or_else(|| least.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Fetch, String> {
        let matches = command().try_get_matches_from(line.split(' '));
        fetch(&matches.map_err(|error| error.to_string())?)
    }

    #[test]
    fn arguments_are_read_as_typed() {
        let plain = typed("fetch https://a/b").expect("it is fine");
        assert_eq!(
            (plain.usage, plain.shown),
            (Usage::Usual, PrintedParts::Body)
        );
        assert_eq!(plain.cache_size, CACHE_SIZE);
        let all = typed(
            "fetch --offline -I -H A:b -H A:ë --max-age 1h --cache d --cache-size 5MiB --timeout 3s http://a",
        );
        let all = all.expect("it is fine");
        assert_eq!((all.usage, all.shown), (Usage::Offline, PrintedParts::Head));
        let values: Vec<_> = all.headers.get_all("a").iter().collect();
        assert_eq!(values, ["b".as_bytes(), "ë".as_bytes()]);
        assert_eq!(all.max_age, Some(Duration::from_hours(1)));
        assert_eq!((all.cache_size, all.cache), (5 << 20, Some("d".into())));
    }

    #[test]
    fn flags_of_curl_are_accepted() {
        let typed = |line| typed(line).expect(line);
        let usual = typed("fetch -sSL --compressed -m 10 -A me -u a:b -O http://h/x/y.tar?z");
        assert_eq!(usual.timeout, Some(Duration::from_secs(10)));
        assert_eq!(usual.output, Some("y.tar".into()));
        assert_eq!(usual.headers["user-agent"], "me");
        assert_eq!(usual.headers["authorization"], "Basic YTpi");
        assert_eq!(typed("fetch -X HEAD http://h").shown, PrintedParts::Head);
        assert_eq!(typed("fetch -I -X HEAD http://h").shown, PrintedParts::Head);
        assert_eq!(typed("fetch -X GET http://h").shown, PrintedParts::Body);
        let posted = typed("fetch -d a=1 -d b=2 http://h");
        assert_eq!(posted.method, Method::POST);
        assert_eq!(posted.data.as_deref(), Some(&b"a=1&b=2"[..]));
        let form = "application/x-www-form-urlencoded";
        assert_eq!(posted.headers["content-type"], form);
        let put = typed("fetch -X PUT -d {} -H content-type:application/json http://h");
        assert_eq!(put.method, Method::PUT);
        assert_eq!(put.headers["content-type"], "application/json");
        let around = typed("fetch -v -k --retry 3 -x proxy:3128 https://h");
        assert!(around.verbose && around.insecure);
        assert_eq!(around.retries, 3);
        let proxy = Url::parse("http://proxy:3128").expect("a url");
        assert_eq!(around.proxy, Some(Proxy::At(proxy)));
        assert_eq!(typed("fetch --proxy= http://h").proxy, Some(Proxy::None));
        let own = typed("fetch -A me -H User-Agent:you http://h");
        assert_eq!(own.headers["user-agent"], "you");
    }

    /// Rejected values may be secret, or contain control characters, and are not printed.
    #[test]
    fn values_that_are_refused_are_not_printed() {
        for arguments in [
            ["-H", "X-Token\r\nHost: hush"],
            ["-H", "X-Token: hush\r\nHost: b"],
            ["-A", "hush\r\nHost: b"],
            ["-x", "http://user:hush@[/"],
        ] {
            let line = [&["fetch"], &arguments[..], &["http://a"]].concat();
            let read = command().try_get_matches_from(line);
            let read = read.map_err(|error| error.to_string());
            let said = read.and_then(|matches| fetch(&matches));
            let said = said.expect_err("it is refused");
            assert!(!said.contains("hush"), "{arguments:?}: {said}");
            assert!(!said.contains('\r'), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_a_remedy() {
        for (line, says) in [
            ("fetch", "no URL"),
            ("fetch example.com", "did you mean https://example.com"),
            ("fetch ftp://a/", "https://"),
            ("fetch http://a http://b", "only one URL"),
            ("fetch --offline --reload http://a", "cannot be used with"),
            ("fetch --fail --no-fail http://a", "cannot be used with"),
            ("fetch -H nothing http://a", "such as 'Accept: text/html'"),
            ("fetch --cache-size 1KiB http://a", "at least 1MiB"),
            ("fetch --timeout 0s http://a", "such as 10s"),
            ("fetch -k --cacert f https://a", "cannot be used with"),
            ("fetch -x socks5://p:1080 http://a", "HTTP proxies only"),
            ("fetch -x http:// http://a", "such as http://proxy:3128"),
            ("fetch --retry many http://a", "--retry"),
            ("fetch -X CONNECT http://a", "is not supported"),
            ("fetch -X G(ET http://a", "not a method"),
            ("fetch -I -X GET http://a", "exclude each other"),
            ("fetch -I -d x=1 http://a", "cannot be used with"),
            ("fetch --offline -d x=1 http://a", "GET and HEAD"),
            ("fetch --offline -X DELETE http://a", "GET and HEAD"),
            ("fetch -d @/does/not/exist http://a", "/does/not/exist"),
            ("fetch -u me http://a", "USER:PASSWORD"),
            ("fetch -O http://a/", "-o FILE"),
        ] {
            let said = typed(line).expect_err(line);
            assert!(said.contains(says), "{line}: {said}");
        }
    }
}
