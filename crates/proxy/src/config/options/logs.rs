//! Options of what is written down: the log of what an operator should know, and the access log.

use std::ops::RangeInclusive;

use super::super::logs::{LogConfig, LogForm, LogLevel, LogPlace};
use super::super::option::{About, Form, Opt, Unset};

const BUFFER: RangeInclusive<u64> = 1 << 16..=1 << 30;

const FORMS: &[(&str, LogForm)] = &[("text", LogForm::Text), ("json", LogForm::Json)];

const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
];

/// Options of what is written down.
pub(in crate::config) const LOGS: &[Opt<LogConfig>] = &[
    Opt {
        about: About {
            name: "access_log",
            form: Form::Text("PATH"),
            unset: Unset::Is(r#""off""#),
            example: r#""/var/log/microcache/access.log""#,
            help: "Where each request gets a line: off, stdout, stderr or a file",
            more: "A file is named with a slash: `./access.log`. It is added to, and opened anew on SIGUSR1 or once it \
                   was moved. What the lines say is in [logs](logs.md).",
        },
        set: |l, v, m| m.put(&mut l.access, v.parse(parse_access)),
    },
    Opt {
        about: About {
            name: "access_log_format",
            form: Form::Text("FORMAT"),
            unset: Unset::Is(r#""text""#),
            example: r#""json""#,
            help: "What a line of it looks like: text or json",
            more: "Text is the combined form of Apache and nginx with more behind it.",
        },
        set: |l, v, m| m.put(&mut l.access_form, v.choice(FORMS)),
    },
    Opt {
        about: About {
            name: "access_log_sample",
            form: Form::Number,
            unset: Unset::Is("1"),
            example: "0.01",
            help: "The share of requests that get a line",
            more: "Requests that are answered with a status from 500 always get one.",
        },
        set: |l, v, m| m.put(&mut l.access_sample, v.share()),
    },
    Opt {
        about: About {
            name: "access_log_query",
            form: Form::Switch,
            unset: Unset::Is("true"),
            example: "false",
            help: "Whether the access log has what stands behind the ? of urls",
            more: "Of `Referer` too. Cookies and `Authorization` are never in it, nor the query of a Mercure hub that has a token in it.",
        },
        set: |l, v, m| m.put(&mut l.access_query, v.switch()),
    },
    Opt {
        about: About {
            name: "log",
            form: Form::Text("PATH"),
            unset: Unset::Is(r#""stderr""#),
            example: r#""/var/log/microcache/error.log""#,
            help: "Where the server says how it is: stderr, stdout or a file",
            more: "What keeps it from starting stands on standard error in any case.",
        },
        set: |l, v, m| m.put(&mut l.place, v.parse(parse_place)),
    },
    Opt {
        about: About {
            name: "log_format",
            form: Form::Text("FORMAT"),
            unset: Unset::Is(r#""text""#),
            example: r#""json""#,
            help: "What a line of it looks like: text or json",
            more: "",
        },
        set: |l, v, m| m.put(&mut l.form, v.choice(FORMS)),
    },
    Opt {
        about: About {
            name: "log_level",
            form: Form::Text("LEVEL"),
            unset: Unset::Is(r#""info""#),
            example: r#""warn""#,
            help: "What is worth a line there: error, warn, info or debug",
            more: "Each has those before it. `debug` has a line for each request to an origin.",
        },
        set: |l, v, m| m.put(&mut l.level, v.choice(LEVELS)),
    },
    Opt {
        about: About {
            name: "log_buffer",
            form: Form::Size,
            unset: Unset::Is(r#""8MiB""#),
            example: r#""8MiB""#,
            help: "What may wait to be written to one log",
            more: "Nobody waits for a log: what a disk or a reader is too slow for, and does not fit in here, is dropped and counted.",
        },
        set: |l, v, m| m.put(&mut l.buffer, v.size(&BUFFER).map(|bytes| bytes as usize)),
    },
    Opt {
        about: About {
            name: "otlp",
            form: Form::Text("URL"),
            unset: Unset::Is(r#""off""#),
            example: r#""http://127.0.0.1:4318""#,
            help: "Where traces of requests are sent: off, or a collector that takes OTLP over HTTP",
            more: "Without a path it is asked for `/v1/traces`. What it is told is in [traces](api.md#traces).",
        },
        set: |l, v, m| m.put(&mut l.otlp, v.parse(parse_collector)),
    },
    Opt {
        about: About {
            name: "otlp_sample",
            form: Form::Number,
            unset: Unset::Is("0.01"),
            example: "0.1",
            help: "The share of requests that are traced",
            more: "A request that comes with a `traceparent` is not traced if that says so, and if a trusted proxy says that it is, it is.",
        },
        set: |l, v, m| m.put(&mut l.otlp_sample, v.share()),
    },
];

fn parse_collector(text: &str) -> Result<Option<String>, String> {
    const WHAT: &str = "off, or a url such as http://127.0.0.1:4318";
    if text == "off" {
        return Ok(None);
    }
    if text.starts_with("https://") {
        return Err("a collector is spoken to by http: name one on this machine, or one behind something that speaks TLS".to_owned());
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

/// A word without a slash is a slip of the hand more often than a file's name.
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
