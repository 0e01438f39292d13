//! `microcache fetch`: what is on its command line.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use microcache_proxy::config::units;
use reqwest::Url;

use super::{Message, file, switch, texts};

/// What the directory takes where nobody says otherwise, and the least that is of use.
const CACHE_SIZE: u64 = 1 << 30;
const LEAST_CACHE_SIZE: u64 = 1 << 20;

/// What is to be fetched, and how.
#[derive(Debug, PartialEq)]
pub(crate) struct Fetch {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) usage: Usage,
    /// How long the response is fresh, whatever its server says.
    pub(crate) max_age: Option<Duration>,
    pub(crate) shown: Shown,
    /// What the cache did is told.
    pub(crate) explain: bool,
    /// The body of an error is printed like any other.
    pub(crate) no_fail: bool,
    /// The file that gets the body.
    pub(crate) output: Option<PathBuf>,
    /// The directory of the cache, where it is not the usual one.
    pub(crate) cache: Option<PathBuf>,
    pub(crate) cache_size: u64,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cacert: Option<PathBuf>,
}

/// How the cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// As RFC 9111 says.
    Usual,
    Offline,
    Reload,
    NoCache,
    NoStore,
}

/// The flags that say so. They exclude each other.
const USAGES: [(&str, Usage, &str); 4] = [
    (
        "offline",
        Usage::Offline,
        "Ask nobody: only what is stored, however stale its server allows it to be",
    ),
    (
        "reload",
        Usage::Reload,
        "Forget what is stored, fetch it anew, and store that",
    ),
    (
        "no-cache",
        Usage::NoCache,
        "Use what is stored only if its server confirms it",
    ),
    (
        "no-store",
        Usage::NoStore,
        "Neither use what is stored nor store what comes",
    ),
];

/// What is printed of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Body,
    /// Status and header first.
    HeadAndBody,
    /// Only they, of a HEAD request.
    Head,
}

/// Flags of `curl` that are taken and change nothing.
const WITHOUT_EFFECT: [(&str, Option<char>, &str); 4] = [
    (
        "location",
        Some('L'),
        "Follow redirections, as it is done anyway",
    ),
    (
        "silent",
        Some('s'),
        "Print no progress, as it is done anyway",
    ),
    (
        "show-error",
        Some('S'),
        "Print errors, as it is done anyway",
    ),
    (
        "compressed",
        None,
        "Taken and ignored: bodies are asked for without compression",
    ),
];

/// Flags of `curl` that cannot be had, whether a value follows, and what to write in their place.
const HINTS: [(&str, Option<char>, bool, &str); 5] = [
    (
        "insecure",
        Some('k'),
        false,
        "every certificate is checked: name the authority of this one with --cacert FILE",
    ),
    (
        "proxy",
        Some('x'),
        true,
        "set the variable http_proxy or https_proxy",
    ),
    (
        "data",
        Some('d'),
        true,
        "only GET and HEAD are sent: what changes something is not for a cache",
    ),
    (
        "verbose",
        Some('v'),
        false,
        "write --explain for the cache's part, or -i for status and header",
    ),
    (
        "retry",
        None,
        true,
        "run it again: what has been stored meanwhile is not fetched again",
    ),
];

const NOTES: &str = "\
Commands that run at the same time, and later ones, share what is stored. Durations are 500ms, 10s, 2m, 1d; sizes
64MiB, 1GB. Proxies are taken from the variables http_proxy, https_proxy and no_proxy.
Exit codes: 0 done, 1 no answer or not all of it, 2 the command line is wrong, 3 --offline and nothing is stored,
4 the server answered with an error (400 and above), 5 the output cannot be written, 129, 130 or 143 ended by a signal.

  microcache fetch https://example.com/data.json
  microcache fetch --max-age 1h -o tools.tar.gz https://example.com/tools.tar.gz
  microcache fetch --offline --explain https://example.com/data.json";

pub(super) fn command() -> Command {
    Command::new("fetch")
        .about("Fetch a url, or take it from the cache that commands share")
        .after_help(NOTES)
        .override_usage("microcache fetch [FLAGS] URL")
        .disable_version_flag(true)
        .arg(Arg::new("URL").num_args(0..).hide(true))
        .args(output_flags())
        .args(cache_flags())
        .args(request_flags())
        .args(flags_of_curl())
}

fn output_flags() -> Vec<Arg> {
    vec![
        flag("output", Some('o'), "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Write the body to a file, which has its name once it is complete [standard output]"),
        switch("remote-name")
            .short('O')
            .conflicts_with("output")
            .help("Write the body to a file that is named as the url's last part"),
        switch("include")
            .short('i')
            .help("Print status and header before the body"),
        switch("head")
            .short('I')
            .help("Ask for status and header only (HEAD), and print them"),
        switch("explain").help("Say on standard error what the cache did, and why"),
        switch("fail")
            .short('f')
            .conflicts_with("no-fail")
            .help("Print no body and end with 4 if the answer is an error, as it is done anyway"),
        switch("no-fail").help("Print the body of an error like any other, and end with 0"),
    ]
}

fn flags_of_curl() -> Vec<Arg> {
    let with = |arg: Arg, short: Option<char>| match short {
        Some(short) => arg.short(short),
        None => arg,
    };
    let done = WITHOUT_EFFECT.map(|(name, short, help)| with(switch(name), short).help(help));
    let hints = HINTS.map(|(name, short, has_value, hint)| {
        let arg = if has_value {
            flag(name, short, "VALUE").action(ArgAction::Append)
        } else {
            with(switch(name), short)
        };
        arg.help(format!("Not offered: {hint}")).hide(true)
    });
    let mut flags = Vec::from(done);
    flags.extend(hints);
    flags
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
            .help("How long what is fetched now is fresh, whatever its server says of that"),
        flag("cache", None, "DIR")
            .value_parser(value_parser!(PathBuf))
            .help("The directory of the cache [$XDG_CACHE_HOME/microcache/fetch or ~/.cache/microcache/fetch]"),
        flag("cache-size", None, "SIZE")
            .value_parser(size)
            .help("What it may take; what was used least recently goes first [1GiB]"),
    ]);
    flags
}

fn request_flags() -> Vec<Arg> {
    vec![
        flag("header", Some('H'), "FIELD")
            .action(ArgAction::Append)
            .help("A field of the request, such as 'Accept: text/html'"),
        flag("user-agent", Some('A'), "AGENT")
            .help("The User-Agent of the request [microcache/VERSION]"),
        flag("user", Some('u'), "USER:PASSWORD")
            .help("Sign in by HTTP Basic; other users of the machine can see it while it runs"),
        flag("request", Some('X'), "METHOD").help("GET or HEAD [GET]"),
        flag("timeout", Some('m'), "DURATION")
            .visible_alias("max-time")
            .value_parser(duration)
            .help(
                "How long all of it may take [as long as something comes at least once a minute]",
            ),
        flag("cacert", None, "FILE")
            .value_parser(value_parser!(PathBuf))
            .help(
                "Believe certificates that an authority in this PEM file has signed [the system's]",
            ),
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
    refuse_what_is_not_offered(matches)?;
    let usage = USAGES.iter().find(|(name, ..)| matches.get_flag(name));
    let url = url(&texts(matches, "URL"))?;
    let output = if matches.get_flag("remote-name") {
        Some(remote_name(&url)?)
    } else {
        file(matches, "output")
    };
    let is_head = match matches.get_one::<String>("request").map(String::as_str) {
        None | Some("GET") => matches.get_flag("head"),
        Some("HEAD") => true,
        Some(other) => return Err(format!("--request {other}: only GET and HEAD are sent")),
    };
    Ok(Fetch {
        url,
        headers: all_headers(matches)?,
        usage: usage.map_or(Usage::Usual, |(_, usage, _)| *usage),
        max_age: matches.get_one("max-age").copied(),
        shown: match (is_head, matches.get_flag("include")) {
            (true, _) => Shown::Head,
            (false, true) => Shown::HeadAndBody,
            (false, false) => Shown::Body,
        },
        explain: matches.get_flag("explain"),
        no_fail: matches.get_flag("no-fail"),
        output,
        cache: file(matches, "cache"),
        cache_size: matches.get_one("cache-size").copied().unwrap_or(CACHE_SIZE),
        timeout: matches.get_one("timeout").copied(),
        cacert: file(matches, "cacert"),
    })
}

fn refuse_what_is_not_offered(matches: &ArgMatches) -> Result<(), String> {
    let is_typed = |(name, _, has_value, _): &&(&str, _, bool, _)| {
        if *has_value {
            matches.get_one::<String>(name).is_some()
        } else {
            matches.get_flag(name)
        }
    };
    match HINTS.iter().find(is_typed) {
        Some((name, .., hint)) => Err(format!("--{name} is not offered: {hint}")),
        None => Ok(()),
    }
}

/// The name of the file that `-O` writes.
fn remote_name(url: &Url) -> Result<PathBuf, String> {
    let last = url.path_segments().and_then(Iterator::last);
    match last.filter(|name| !name.is_empty()) {
        Some(name) => Ok(name.into()),
        None => Err(format!("{url} names no file for -O: write -o FILE")),
    }
}

/// The fields of `-H`, `-A` and `-u`. A field that `-H` names counts before the flag for it.
fn all_headers(matches: &ArgMatches) -> Result<HeaderMap, String> {
    let mut headers = headers(&texts(matches, "header"))?;
    let text = |name: &str| matches.get_one::<String>(name);
    let credentials = text("user").map(|user| format!("Basic {}", BASE64_STANDARD.encode(user)));
    for (name, value) in [
        (USER_AGENT, text("user-agent").cloned()),
        (AUTHORIZATION, credentials),
    ] {
        let Some(value) = value else { continue };
        let unfit = |_| format!("the value for {name} has characters that no field may have");
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(unfit)?;
        headers.entry(name.clone()).or_insert(value);
    }
    Ok(headers)
}

fn url(typed: &[String]) -> Result<Url, String> {
    let text = match typed {
        [] => return Err("which url? Type: microcache fetch https://example.com/".to_owned()),
        [text] => text,
        [_, second, ..] => return Err(format!("one url at a time, and not `{second}` too")),
    };
    let url = Url::parse(text);
    let url = url.map_err(|why| format!("`{text}` is no url ({why}); write https://{text}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err(format!(
            "`{text}` is not fetched; write https://…, or http://…"
        )),
    }
}

fn headers(typed: &[String]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for line in typed {
        let unfit = || {
            format!(
                "--header {line}: expected a name, a colon and a value, such as 'Accept: text/html'"
            )
        };
        let (name, value) = line.split_once(':').ok_or_else(unfit)?;
        let name: HeaderName = name.trim().parse().map_err(|_| unfit())?;
        // Letters beyond ASCII are sent as they were typed.
        let value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| unfit())?;
        headers.append(name, value);
    }
    Ok(headers)
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
    let least = "expected a size of 1MiB at least, such as 500MiB";
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
    fn what_is_typed_is_what_is_done() {
        let plain = typed("fetch https://a/b").expect("it is fine");
        assert_eq!((plain.usage, plain.shown), (Usage::Usual, Shown::Body));
        assert_eq!(plain.cache_size, CACHE_SIZE);
        let all = typed(
            "fetch --offline -I -H A:b -H A:ë --max-age 1h --cache d --cache-size 5MiB --timeout 3s http://a",
        );
        let all = all.expect("it is fine");
        assert_eq!((all.usage, all.shown), (Usage::Offline, Shown::Head));
        let values: Vec<_> = all.headers.get_all("a").iter().collect();
        assert_eq!(values, ["b".as_bytes(), "ë".as_bytes()]);
        assert_eq!(all.max_age, Some(Duration::from_hours(1)));
        assert_eq!((all.cache_size, all.cache), (5 << 20, Some("d".into())));
    }

    #[test]
    fn what_fingers_type_for_curl_is_taken() {
        let typed = |line| typed(line).expect(line);
        let usual = typed("fetch -sSL --compressed -m 10 -A me -u a:b -O http://h/x/y.tar?z");
        assert_eq!(usual.timeout, Some(Duration::from_secs(10)));
        assert_eq!(usual.output, Some("y.tar".into()));
        assert_eq!(usual.headers["user-agent"], "me");
        assert_eq!(usual.headers["authorization"], "Basic YTpi");
        assert_eq!(typed("fetch -X HEAD http://h").shown, Shown::Head);
        assert_eq!(typed("fetch -X GET http://h").shown, Shown::Body);
        let own = typed("fetch -A me -H User-Agent:you http://h");
        assert_eq!(own.headers["user-agent"], "you");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_remedy() {
        for (line, says) in [
            ("fetch", "which url?"),
            ("fetch example.com", "write https://example.com"),
            ("fetch ftp://a/", "https://"),
            ("fetch http://a http://b", "one url at a time"),
            ("fetch --offline --reload http://a", "cannot be used with"),
            ("fetch --fail --no-fail http://a", "cannot be used with"),
            ("fetch -H nothing http://a", "such as 'Accept: text/html'"),
            ("fetch --cache-size 1KiB http://a", "1MiB at least"),
            ("fetch --timeout 0s http://a", "such as 10s"),
            ("fetch -k https://a", "--cacert FILE"),
            ("fetch -x http://p http://a", "http_proxy"),
            ("fetch -d x=1 http://a", "only GET and HEAD"),
            ("fetch -v http://a", "--explain"),
            ("fetch --retry 3 http://a", "run it again"),
            ("fetch -X POST http://a", "only GET and HEAD"),
            ("fetch -O http://a/", "-o FILE"),
        ] {
            let said = typed(line).expect_err(line);
            assert!(said.contains(says), "{line}: {said}");
        }
    }
}
