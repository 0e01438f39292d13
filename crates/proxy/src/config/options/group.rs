//! Options of upstream groups: at the top for all groups, in a group for itself.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use rustls::pki_types::ServerName;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::origin_url::OriginUrl;
use super::super::raw::Value;
use super::tls::certificate_and_key;
use super::{WAIT, set_defaults};
use crate::upstream::settings::{GroupSettings, HealthCheck, ServerSettings};

const UPLOAD: RangeInclusive<u64> = 0..=1 << 30;

/// The short form of one group.
pub(in crate::config) const ORIGIN: &[Opt<Vec<ServerSettings>>] = &[Opt {
    about: About {
        name: "origin",
        form: Form::List("URL"),
        unset: Unset::Says("none; needed unless there are `[upstreams]`"),
        example: r#""http://localhost:3000""#,
        help: "The application's url; several are one upstream group",
        more: "`https://` is TLS, with a certificate that has to be good. On the command line it needs no flag: `microcache http://localhost:3000`. It is the group named \
               `origin`, and routes that name no upstream go there.",
    },
    set: set_servers,
}];

/// Options that only a group has.
pub(in crate::config) const SERVERS: &[Opt<GroupSettings>] = &[Opt {
    about: About {
        name: "servers",
        form: Form::List("URL"),
        unset: Unset::Says("needed"),
        example: r#"["http://10.0.0.1:3000", { url = "http://10.0.0.2:3000", weight = 2 }]"#,
        help: "The servers of the group: urls, or tables with `url`, `weight` and `backup`",
        more: "",
    },
    set: |g, v, m| set_servers(&mut g.servers, v, m),
}];

/// What one server of a group may be given beside its url.
pub(in crate::config) const SERVER_ENTRY: &[Opt<ServerSettings>] = &[
    Opt {
        about: About {
            name: "url",
            form: Form::Text("URL"),
            unset: Unset::Says("needed"),
            example: r#""http://10.0.0.2:3000""#,
            help: "Where the server is",
            more: "",
        },
        set: |s, v, m| {
            if let Some(url) = m.ok(v.parse(OriginUrl::parse)) {
                s.host = url.host;
                s.port = url.port;
                s.tls = url.tls;
            }
        },
    },
    Opt {
        about: About {
            name: "weight",
            form: Form::Number,
            unset: Unset::Is("1"),
            example: "2",
            help: "How many requests it takes for each one of a server with weight 1",
            more: "",
        },
        set: |s, v, m| m.put(&mut s.weight, v.count(1..=1000).map(|n| n as u32)),
    },
    Opt {
        about: About {
            name: "backup",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "It is used only while all others are down",
            more: "",
        },
        set: |s, v, m| m.put(&mut s.backup, v.switch()),
    },
];

/// Options that all groups share.
pub(in crate::config) const GROUP: &[Opt<GroupSettings>] = &[
    Opt {
        about: About {
            name: "max_concurrent",
            form: Form::Number,
            unset: Unset::Is("64"),
            example: "64",
            help: "The most requests that are with one upstream group at a time",
            more: "The others wait in a queue, clients before refreshes.",
        },
        set: |g, v, m| m.put(&mut g.max_concurrent, v.count(1..=1_000_000)),
    },
    Opt {
        about: About {
            name: "max_uploads",
            form: Form::Number,
            unset: Unset::Says("half of `max_concurrent`"),
            example: "32",
            help: "The most of these requests whose bodies are still on their way",
            more: "The other places are for requests that need no more from their clients, such as those for pages. Uploads \
                   beyond it wait in a queue of their own. One address has half of these places at most.",
        },
        set: |g, v, m| g.max_uploads = m.ok(v.count(1..=1_000_000)),
    },
    Opt {
        about: About {
            name: "upload_buffer",
            form: Form::Size,
            unset: Unset::Is(r#""64KiB""#),
            example: r#""64KiB""#,
            help: "As much of a request's body is read before the request goes to a server",
            more: "A body that is no longer reaches the server in one piece: no worker of the application waits for its client. \
                   `0` reads nothing, and every request with a body is an upload.",
        },
        set: |g, v, m| m.put(&mut g.upload_buffer, v.size(&UPLOAD).map(|n| n as usize)),
    },
    Opt {
        about: About {
            name: "upload_memory",
            form: Form::Size,
            unset: Unset::Is(r#""16MiB""#),
            example: r#""16MiB""#,
            help: "What all bodies that are read so may take together",
            more: "Beyond it a body that does not come in one go is an upload, as if it were longer.",
        },
        set: |g, v, m| m.put(&mut g.upload_memory, v.size(&(0..=1 << 40))),
    },
    Opt {
        about: About {
            name: "upload_wait",
            form: Form::Duration,
            unset: Unset::Is(r#""1s""#),
            example: r#""1s""#,
            help: "How long a body that does not say its length is read so",
            more: "It may be a conversation, in which the client waits for the server to speak.",
        },
        set: |g, v, m| m.put(&mut g.upload_wait, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "max_queue",
            form: Form::Number,
            unset: Unset::Is("1024"),
            example: "1024",
            help: "The most requests that wait in that queue; more are answered 503",
            more: "The addresses of clients take turns in it; when it is full, the newest of the address with most waiting gives way. Behind a CDN \
                   or load balancer that is not in `trusted_proxies`, all clients are one address.",
        },
        set: |g, v, m| m.put(&mut g.max_queue, v.count(0..=10_000_000)),
    },
    Opt {
        about: About {
            name: "queue_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""10s""#),
            example: r#""10s""#,
            help: "How long they wait there before they are answered 503",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.queue_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "connect_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""3s""#),
            example: r#""3s""#,
            help: "How long connecting to a server may take",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.connect_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "first_byte_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""60s""#),
            example: r#""60s""#,
            help: "How long a server may take to begin its answer",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.first_byte_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "between_bytes_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How long a server may be silent within its answer",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.between_bytes_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "event_stream_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""1h""#),
            example: r#""1h""#,
            help: "How long an event stream may be silent",
            more: "It has nothing to say until something happens.",
        },
        set: |g, v, m| m.put(&mut g.event_stream_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "pool_idle_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""4s""#),
            example: r#""4s""#,
            help: "How long an unused connection to a server is kept",
            more: "Keep it shorter than the server does: many application servers close theirs after 5 seconds, and a \
                   request that meets a closing connection may be lost.",
        },
        set: |g, v, m| m.put(&mut g.idle_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "pool_size",
            form: Form::Number,
            unset: Unset::Is("64"),
            example: "64",
            help: "The most unused connections kept per server",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.max_idle, v.count(0..=1_000_000)),
    },
    Opt {
        about: About {
            name: "max_signed_in",
            form: Form::Number,
            unset: Unset::Is("256"),
            example: "256",
            help: "The most connections to a group that belong each to one client",
            more: "Where signing in is a matter of the connection (NTLM, Negotiate), it is kept for the client who signed in \
                   on it, until he leaves. Beyond it clients cannot sign in so.",
        },
        set: |g, v, m| m.put(&mut g.max_signed_in, v.count(0..=1_000_000)),
    },
    Opt {
        about: About {
            name: "fail_limit",
            form: Form::Number,
            unset: Unset::Is("3"),
            example: "3",
            help: "So many failures in a row take a server out",
            more: "Refused and lost connections and time-outs are failures; error responses are not.",
        },
        set: |g, v, m| m.put(&mut g.fail_limit, v.count(1..=1_000_000).map(|n| n as u32)),
    },
    Opt {
        about: About {
            name: "fail_pause",
            form: Form::Duration,
            unset: Unset::Is(r#""5s""#),
            example: r#""5s""#,
            help: "How long it then stays out before one request tries it",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.fail_pause, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "resolve_every",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How often the names of servers are looked up again",
            more: "",
        },
        set: |g, v, m| m.put(&mut g.resolve_every, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "origin_ca",
            form: Form::Text("FILE"),
            unset: Unset::Says("those of the system"),
            example: r#""/etc/microcache/ca.pem""#,
            help: "The certificates that vouch for servers with https urls, in PEM form",
            more: "In place of those of the system. A server's own certificate may be one of them.",
        },
        set: |g, v, m| {
            m.put(
                &mut g.tls.ca,
                v.text().map(|file| Some(PathBuf::from(file))),
            );
        },
    },
    Opt {
        about: About {
            name: "origin_certificate",
            form: Form::Text("CERTIFICATE,KEY"),
            unset: Unset::Says("none"),
            example: r#""/etc/microcache/client.pem,/etc/microcache/client.key""#,
            help: "The certificate that servers are shown who ask for one, and its key",
            more: "One file may hold both.",
        },
        set: |g, v, m| {
            m.put(
                &mut g.tls.certificate,
                v.parse(certificate_and_key).map(Some),
            );
        },
    },
    Opt {
        about: About {
            name: "origin_name",
            form: Form::Text("NAME"),
            unset: Unset::Says("the host in the url"),
            example: r#""app.internal""#,
            help: "The name that the certificates of servers have to be for",
            more: "It is what they are asked for as well (SNI).",
        },
        set: |g, v, m| m.put(&mut g.tls.name, v.parse(server_name).map(Some)),
    },
    Opt {
        about: About {
            name: "origin_host",
            form: Form::Text("HOST"),
            unset: Unset::Says("what the client has sent"),
            example: r#""app.internal""#,
            help: "The Host that servers are sent",
            more: "For those who know themselves by another name only. What the client has sent is in X-Forwarded-Host and Forwarded, \
                   and is what tells responses apart.",
        },
        set: |g, v, m| m.put(&mut g.host, v.parse(host_name).map(Some)),
    },
    Opt {
        about: About {
            name: "origin_http2",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Speak HTTP/2 with servers",
            more: "Many requests share a connection. With https urls it is offered, and HTTP/1.1 is spoken where a server does not take it; with http urls \
                   servers have to speak it without being asked. Upgrades (WebSocket) go by HTTP/1.1.",
        },
        set: |g, v, m| m.put(&mut g.http2, v.switch()),
    },
    Opt {
        about: About {
            name: "health_check",
            form: Form::Table("how servers are asked"),
            unset: Unset::Says("none: servers are judged by their answers"),
            example: r#"{ path = "/healthz", interval = "5s" }"#,
            help: "Ask servers whether they are well",
            more: "",
        },
        set: set_health_check,
    },
];

/// How servers are asked whether they are well.
pub(in crate::config) const HEALTH_CHECK: &[Opt<HealthCheck>] = &[
    Opt {
        about: About {
            name: "path",
            form: Form::Text("PATH"),
            unset: Unset::Is(r#""/""#),
            example: r#""/healthz""#,
            help: "What is asked for, with GET",
            more: "",
        },
        set: |h, v, m| m.put(&mut h.path, v.parse(path)),
    },
    Opt {
        about: About {
            name: "interval",
            form: Form::Duration,
            unset: Unset::Is(r#""5s""#),
            example: r#""5s""#,
            help: "How often",
            more: "",
        },
        set: |h, v, m| m.put(&mut h.interval, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""2s""#),
            example: r#""2s""#,
            help: "How long an answer may take",
            more: "It cannot be longer than the interval.",
        },
        set: |h, v, m| m.put(&mut h.timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "expect",
            form: Form::Text("STATUS"),
            unset: Unset::Is(r#""200-399""#),
            example: r#""200-299""#,
            help: "The status codes of a server that is well",
            more: "",
        },
        set: |h, v, m| m.put(&mut h.expect, v.parse(status_range)),
    },
    Opt {
        about: About {
            name: "rise",
            form: Form::Number,
            unset: Unset::Is("2"),
            example: "2",
            help: "So many good answers in a row bring a server back",
            more: "",
        },
        set: |h, v, m| m.put(&mut h.rise, v.count(1..=1000).map(|n| n as u32)),
    },
    Opt {
        about: About {
            name: "fall",
            form: Form::Number,
            unset: Unset::Is("3"),
            example: "3",
            help: "So many bad answers in a row take it out",
            more: "",
        },
        set: |h, v, m| m.put(&mut h.fall, v.count(1..=1000).map(|n| n as u32)),
    },
];

fn set_servers(servers: &mut Vec<ServerSettings>, value: &Value, mistakes: &mut Mistakes) {
    servers.clear();
    for item in value.items() {
        let Some(server) = read_server(item, mistakes) else {
            continue;
        };
        let same = |s: &ServerSettings| s.host == server.host && s.port == server.port;
        if servers.iter().any(same) {
            let what = format!("{}:{} is listed twice", server.host, server.port);
            mistakes.note(Mistake::new(&item.place, what).remedy("give it a weight instead"));
        }
        servers.push(server);
    }
    if value.items().is_empty() {
        mistakes.note(Mistake::new(&value.place, "no server").remedy("list at least one url"));
    } else if !servers.is_empty() && servers.iter().all(|server| server.backup) {
        mistakes.note(Mistake::new(
            &value.place,
            "every server is a backup, but of none",
        ));
    }
}

fn read_server(value: &Value, mistakes: &mut Mistakes) -> Option<ServerSettings> {
    let mut server = ServerSettings::new("", 0);
    set_defaults(SERVER_ENTRY, &mut server);
    if value.is_text() {
        let url = mistakes.ok(value.parse(OriginUrl::parse))?;
        server.host = url.host;
        server.port = url.port;
        server.tls = url.tls;
        return Some(server);
    }
    let table = mistakes.ok(value.table())?;
    table.apply(SERVER_ENTRY, &mut server, mistakes);
    if table.get("url").is_none() {
        mistakes.note(Mistake::new(&value.place, "a server without `url`"));
    }
    table.refuse_rest(mistakes);
    Some(server).filter(|server| server.port != 0)
}

fn set_health_check(group: &mut GroupSettings, value: &Value, mistakes: &mut Mistakes) {
    let Some(table) = mistakes.ok(value.table()) else {
        return;
    };
    let mut check = HealthCheck::default();
    set_defaults(HEALTH_CHECK, &mut check);
    table.apply(HEALTH_CHECK, &mut check, mistakes);
    if check.timeout > check.interval {
        let place = table.get("timeout").map_or(&value.place, |v| &v.place);
        mistakes.note(Mistake::new(place, "`timeout` is longer than `interval`"));
    }
    table.refuse_rest(mistakes);
    group.health = Some(check);
}

fn server_name(text: &str) -> Result<String, String> {
    match ServerName::try_from(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("write the name of a host, or an address".to_owned()),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    match OriginUrl::parse(&format!("http://{text}")) {
        Ok(_) if !text.ends_with('/') => Ok(text.to_owned()),
        _ => Err("write HOST or HOST:PORT".to_owned()),
    }
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        Ok(text.to_owned())
    } else {
        Err("write a path, such as \"/healthz\"".to_owned())
    }
}

fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 100 <= first && first <= last && last <= 599 => Ok(first..=last),
        _ => Err("write one status or a range, such as \"200\" or \"200-399\"".to_owned()),
    }
}
