//! Options of the server log, the access log and traces.

use std::ops::RangeInclusive;

use super::super::log_field::LogField;
use super::super::logs::{LogConfig, LogForm, LogLevel, LogPlace};
use super::super::option::Form::{List, Number, Size, Switch, Text};
use super::super::option::{Opt, opt};

const BUFFER: RangeInclusive<u64> = 1 << 16..=1 << 30;

const FORMS: &[(&str, LogForm)] = &[("text", LogForm::Text), ("json", LogForm::Json)];

const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
];

/// Options of logs and traces.
pub(in crate::config) const LOGS: &[Opt<LogConfig>] = &[
    opt("access_log", Text("PATH"), "off")
        .example("/var/log/microcache/access.log")
        .help("Access log: `off`, `stdout`, `stderr` or a file")
        .more(
            "A file is written with a slash: `./access.log`. It is appended to, and reopened on \
             SIGUSR1 or when it was moved (logrotate). See [logs](logs.md) for the format.",
        )
        .sets(|l, v, m| m.put(&mut l.access, v.parse(parse_access))),
    opt("access_log_format", Text("text|json"), "text")
        .example("json")
        .help("Format of the access log: `text` or `json`")
        .more("Text is the combined format of Apache and nginx with further fields at the end.")
        .sets(|l, v, m| m.put(&mut l.access_form, v.choice(FORMS))),
    opt("access_log_fields", List("FIELD"), "[]")
        .example(r#"["time", "client", "target", "status", "upstream", "request:X-Device"]"#)
        .help("Fields of the access log, in this order")
        .more(
            "Text is `name=value` then, and JSON an object of these. Names are those of the JSON format, `upstream` (the \
             server asked), `upstream_time_ms` (its time to first byte), `request_id` (as `{request_id}` in `request_headers`), and header fields \
             as `request:NAME` and `response:NAME`. Cookies and credentials are refused.",
        )
        .sets(|l, v, m| l.access_fields = v.each(m, |item| item.parse(LogField::parse))),
    opt("access_log_sample", Number, "1")
        .example("0.01")
        .help("Fraction of requests that are logged, from 0 to 1")
        .more("Responses with a status of 500 or above are always logged.")
        .sets(|l, v, m| m.put(&mut l.access_sample, v.share())),
    opt("access_log_query", Switch, "true")
        .example("false")
        .help("Query strings in the access log")
        .more(
            "In `Referer` too. Cookies and `Authorization` are never logged, nor the query of a \
             Mercure hub request that contains a token.",
        )
        .sets(|l, v, m| m.put(&mut l.access_query, v.switch())),
    opt("log", Text("PATH"), "stderr")
        .example("/var/log/microcache/error.log")
        .help("Server log: `stderr`, `stdout` or a file")
        .more("Errors at startup always go to stderr as well.")
        .sets(|l, v, m| m.put(&mut l.place, v.parse(parse_place))),
    opt("log_format", Text("text|json"), "text")
        .example("json")
        .help("Format of the server log: `text` or `json`")
        .sets(|l, v, m| m.put(&mut l.form, v.choice(FORMS))),
    opt("log_level", Text("error|warn|info|debug"), "info")
        .example("warn")
        .help("Minimum level of the server log: error, warn, info or debug")
        .more("Each level includes those before it. `debug` logs each request to an origin.")
        .sets(|l, v, m| m.put(&mut l.level, v.choice(LEVELS))),
    opt("log_buffer", Size, "8MiB")
        .help("Memory for lines not yet written, per log")
        .more(
            "Requests never wait for a log: lines that exceed the buffer are dropped and counted.",
        )
        .sets(|l, v, m| m.put(&mut l.buffer, v.size(&BUFFER).map(|bytes| bytes as usize))),
    opt("otlp", Text("URL"), "off")
        .example("http://127.0.0.1:4318")
        .help("Traces: URL of an OpenTelemetry collector (OTLP over HTTP), or `off`")
        .more("Without a path, `/v1/traces` is added. See [traces](api.md#traces).")
        .sets(|l, v, m| m.put(&mut l.otlp, v.parse(parse_collector))),
    opt("otlp_sample", Number, "0.01")
        .example("0.1")
        .help("Fraction of requests that are traced, from 0 to 1")
        .more(
            "A `traceparent` that says \"not sampled\" is respected; one that says \"sampled\" \
             only from a trusted proxy.",
        )
        .sets(|l, v, m| m.put(&mut l.otlp_sample, v.share())),
];

fn parse_collector(text: &str) -> Result<Option<String>, String> {
    const WHAT: &str = "off, or a url such as http://127.0.0.1:4318";
    if text == "off" {
        return Ok(None);
    }
    if text.starts_with("https://") {
        return Err("https is not supported: use a collector on this machine, or one behind a proxy that adds TLS".to_owned());
    }
    let rest = text.strip_prefix("http://").ok_or(WHAT)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_plain = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#@\\".contains(&byte))
    };
    if authority.is_empty() || !is_plain(authority) || !is_plain(path) {
        return Err(WHAT.to_owned());
    }
    Ok(Some(match path {
        "" => format!("http://{authority}/v1/traces"),
        path => format!("http://{authority}/{path}"),
    }))
}

fn parse_access(text: &str) -> Result<Option<LogPlace>, String> {
    match text {
        "off" => Ok(None),
        _ => parse_place(text)
            .map(Some)
            .map_err(|why| format!("write off, {why}")),
    }
}

/// Parses the destination of a log. A file needs a slash, since a bare word is usually a typing error.
fn parse_place(text: &str) -> Result<LogPlace, String> {
    match text {
        "stdout" => Ok(LogPlace::Stdout),
        "stderr" => Ok(LogPlace::Stderr),
        path if path.contains('/') && !path.ends_with('/') => Ok(LogPlace::File(path.into())),
        _ => Err(
            "stdout, stderr, or the path of a file with a slash, such as ./microcache.log"
                .to_owned(),
        ),
    }
}
