//! `microcache fetch`: what is on its command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use http::header::{HeaderMap, HeaderName, HeaderValue};
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
}

fn output_flags() -> Vec<Arg> {
    vec![
        flag("output", Some('o'), "FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Write the body to a file, which has its name once it is complete [standard output]"),
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
        flag("timeout", None, "DURATION")
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
    let usage = USAGES.iter().find(|(name, ..)| matches.get_flag(name));
    Ok(Fetch {
        url: url(&texts(matches, "URL"))?,
        headers: headers(&texts(matches, "header"))?,
        usage: usage.map_or(Usage::Usual, |(_, usage, _)| *usage),
        max_age: matches.get_one("max-age").copied(),
        shown: match (matches.get_flag("head"), matches.get_flag("include")) {
            (true, _) => Shown::Head,
            (false, true) => Shown::HeadAndBody,
            (false, false) => Shown::Body,
        },
        explain: matches.get_flag("explain"),
        no_fail: matches.get_flag("no-fail"),
        output: file(matches, "output"),
        cache: file(matches, "cache"),
        cache_size: matches.get_one("cache-size").copied().unwrap_or(CACHE_SIZE),
        timeout: matches.get_one("timeout").copied(),
        cacert: file(matches, "cacert"),
    })
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
    units::parse_duration(text)
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
        ] {
            let said = typed(line).expect_err(line);
            assert!(said.contains(says), "{line}: {said}");
        }
    }
}
