//! Options of upstream groups, at the top for all groups or in one group.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use http::Method;
use rustls::pki_types::ServerName;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Duration, List, Number, Size, Switch, Table, Text};
use super::super::option::{Opt, opt, optional};
use super::super::origin_url::OriginUrl;
use super::super::raw::Value;
use super::files::folder;
use super::tls::certificate_and_key;
use super::{WAIT, set_defaults};
use crate::upstream::settings::{
    Balancing, GroupSettings, HealthCheck, ServerAddress, ServerSettings,
};

const UPLOAD: RangeInclusive<u64> = 0..=1 << 30;

/// The option for a single group.
pub(in crate::config) const ORIGIN: &[Opt<Vec<ServerSettings>>] = &[optional(
    "origin",
    List("URL"),
    r#""http://localhost:3000""#,
)
.unset("none; required unless there are `[upstreams]`")
.help("URL of the application (origin, backend); several form one upstream group")
.more(
    "With `https://` the certificate is verified. `http://unix:/run/app.sock` is a Unix socket, \
             `fastcgi://127.0.0.1:9000` or `fastcgi://unix:/run/php/php-fpm.sock` is php-fpm (see `php_root`). On the \
             command line it needs no flag: `microcache http://localhost:3000`. It defines the group named `origin`, used \
             by all routes without `upstream`.",
)
.sets(set_servers)];

/// Options that only a group has.
pub(in crate::config) const SERVERS: &[Opt<GroupSettings>] = &[optional(
    "servers",
    List("URL"),
    r#"["http://10.0.0.1:3000", { url = "http://10.0.0.2:3000", weight = 2 }]"#,
)
.unset("required")
.help("Servers of the group: URLs, or tables with `url`, `weight` and `backup`")
.sets(|g, v, m| set_servers(&mut g.servers, v, m))];

/// Options of one server of a group.
pub(in crate::config) const SERVER_ENTRY: &[Opt<ServerSettings>] = &[
    optional("url", Text("URL"), "http://10.0.0.2:3000")
        .unset("required")
        .help("URL of the origin server (backend)")
        .sets(|s, v, m| {
            if let Some(url) = m.ok(v.parse(OriginUrl::parse)) {
                s.address = url.address;
                s.protocol = url.protocol;
                s.path = url.path;
            }
        }),
    opt("weight", Number, "1")
        .example("2")
        .help("Share of requests relative to a server of weight 1")
        .sets(|s, v, m| m.put(&mut s.weight, v.count(1..=1000).map(|n| n as u32))),
    opt("backup", Switch, "false")
        .example("true")
        .help("Backup server: used only while all others are down")
        .sets(|s, v, m| m.put(&mut s.backup, v.switch())),
];

/// Options that all groups share.
pub(in crate::config) const GROUP: &[Opt<GroupSettings>] = &[
    opt("balance", Text("METHOD"), "least_connections")
        .example("round_robin")
        .help("Load balancing: least_connections or round_robin")
        .more(
            "`least_connections` chooses the server with the fewest requests in progress for its weight, and takes turns \
             among equals. `round_robin` takes turns whatever the servers are doing: for servers that spread the work \
             themselves.",
        )
        .sets(|g, v, m| {
            let methods = [
                ("least_connections", Balancing::LeastConnections),
                ("round_robin", Balancing::RoundRobin),
            ];
            m.put(&mut g.balancing, v.choice(&methods));
        }),
    opt("max_concurrent", Number, "64")
        .help("Maximum concurrent requests to an origin group (backend)")
        .more(
            "Further requests wait in a queue (back-pressure); clients come before background \
             revalidations. Of those, fewer run at a time if more are not completed faster.",
        )
        .sets(|g, v, m| m.put(&mut g.max_concurrent, v.count(1..=1_000_000))),
    optional("max_uploads", Number, "32")
        .unset("half of `max_concurrent`")
        .help("Maximum concurrent uploads: requests whose body is still arriving")
        .more(
            "A part of `max_concurrent`; the rest is reserved for requests that are complete, \
             such as those for pages. Further uploads wait in a queue of their own. An address gets a \
             place while it holds fewer than are free, so one alone has at most half of them. After \
             half of `queue_timeout`, the slowest upload of the address with the most ends with 503 \
             in favour of an address that has none.",
        )
        .sets(|g, v, m| g.max_uploads = m.ok(v.count(1..=1_000_000))),
    optional("max_warming", Number, "4")
        .unset("a quarter of `max_concurrent`")
        .help("Maximum concurrent requests of warming and of purges with refresh")
        .more(
            "A part of `max_concurrent`. They wait behind clients and background revalidations, and a client that \
             asks for the same page moves its request up. See [warming](warming.md).",
        )
        .sets(|g, v, m| g.max_warming = m.ok(v.count(1..=1_000_000))),
    opt("upload_buffer", Size, "64KiB")
        .help("Request body bytes to buffer before the request goes to the origin")
        .more(
            "A body up to this size reaches the backend in one piece, so that none of its workers \
             waits for a slow client. `0` disables buffering, and makes every request with a body \
             an upload.",
        )
        .sets(|g, v, m| m.put(&mut g.upload_buffer, v.size(&UPLOAD).map(|n| n as usize))),
    opt("upload_memory", Size, "16MiB")
        .help("Memory for all request bodies being buffered")
        .more(
            "When it is used up, a request whose body has not arrived yet is treated as an \
             upload.",
        )
        .sets(|g, v, m| m.put(&mut g.upload_memory, v.size(&(0..=1 << 40)))),
    opt("upload_wait", Duration, "1s")
        .help("Maximum time to buffer a request body of unknown length")
        .more("The client may be waiting for the server to speak first.")
        .sets(|g, v, m| m.put(&mut g.upload_wait, v.duration(&WAIT))),
    opt("max_queue", Number, "1024")
        .help("Maximum requests queued for an origin group; above it 503")
        .more(
            "Client addresses take turns; when the queue is full, the newest request of the \
             address with the most queued ones is rejected. Behind a CDN or load balancer that is \
             not in `trusted_proxies` all clients are one address.",
        )
        .sets(|g, v, m| m.put(&mut g.max_queue, v.count(0..=10_000_000))),
    opt("queue_timeout", Duration, "10s")
        .help("Maximum time in the queue of an origin group; after it 503")
        .sets(|g, v, m| m.put(&mut g.queue_timeout, v.duration(&WAIT))),
    opt("connect_timeout", Duration, "3s")
        .help("Connect timeout to an origin server (TCP and TLS)")
        .sets(|g, v, m| m.put(&mut g.connect_timeout, v.duration(&WAIT))),
    opt("first_byte_timeout", Duration, "60s")
        .help("Read timeout for the first byte of an origin response")
        .sets(|g, v, m| m.put(&mut g.first_byte_timeout, v.duration(&WAIT))),
    opt("between_bytes_timeout", Duration, "30s")
        .help("Read timeout between two reads of an origin response body")
        .sets(|g, v, m| m.put(&mut g.between_bytes_timeout, v.duration(&WAIT))),
    opt("event_stream_timeout", Duration, "1h")
        .help("Idle timeout of event streams (SSE) from the origin")
        .more(
            "In place of `between_bytes_timeout`: an event stream is silent until something \
             happens.",
        )
        .sets(|g, v, m| m.put(&mut g.event_stream_timeout, v.duration(&WAIT))),
    opt("pool_idle_timeout", Duration, "4s")
        .help("Keep-alive (idle) timeout of pooled connections to the origin")
        .more(
            "Keep it shorter than the keep-alive timeout of the backend: many application servers \
             close idle connections after 5 seconds, and a request that meets a closing \
             connection may be lost. Requests that are safe to repeat are sent again (retry) on a \
             new connection.",
        )
        .sets(|g, v, m| m.put(&mut g.idle_timeout, v.duration(&WAIT))),
    opt("pool_size", Number, "64")
        .help("Maximum idle keep-alive connections per origin server")
        .sets(|g, v, m| m.put(&mut g.max_idle, v.count(0..=1_000_000))),
    opt("max_signed_in", Number, "256")
        .help("Maximum origin connections bound to one client each (NTLM, Negotiate)")
        .more(
            "Where authentication belongs to the connection, it stays reserved for the client \
             that signed in on it until that client disconnects. Above the limit such clients \
             cannot sign in. An address gets one while it holds fewer than are free.",
        )
        .sets(|g, v, m| m.put(&mut g.max_signed_in, v.count(0..=1_000_000))),
    opt("fail_limit", Number, "3")
        .help("Consecutive failures after which an origin server is taken out")
        .more(
            "Refused connections, lost connections and timeouts are failures; error responses are \
             those of `fail_status`.",
        )
        .sets(|g, v, m| m.put(&mut g.fail_limit, v.count(1..=1_000_000).map(|n| n as u32))),
    optional("fail_status", Text("STATUS"), "500-599")
        .help("Status code or range that counts as a failure of the origin server")
        .more(
            "A server is taken out for such responses only while at least half of the group stays in: if every server \
             answers with errors, the application is at fault. The response is delivered all the same.",
        )
        .sets(|g, v, m| m.put(&mut g.fail_status, v.parse(status_range).map(Some))),
    opt("fail_pause", Duration, "5s")
        .help("Time a failed origin server stays out before a retry with one request")
        .sets(|g, v, m| m.put(&mut g.fail_pause, v.duration(&WAIT))),
    opt("resolve_every", Duration, "30s")
        .help("DNS refresh interval for the names of origin servers")
        .sets(|g, v, m| m.put(&mut g.resolve_every, v.duration(&WAIT))),
    optional("origin_ca", Text("FILE"), "/etc/microcache/ca.pem")
        .unset("the system's roots")
        .help("File (PEM) with CA certificates to verify https origins")
        .more(
            "Replaces the system's. The certificate of an origin server itself is accepted as \
             well.",
        )
        .sets(|g, v, m| m.put(&mut g.tls.ca, v.path().map(Some))),
    optional(
        "origin_certificate",
        Text("CERTIFICATE,KEY"),
        "/etc/microcache/client.pem,/etc/microcache/client.key",
    )
    .help("Client certificate and key for mutual TLS with the origin, in PEM form")
    .more("One file may hold both.")
    .sets(|g, v, m| {
        m.put(
            &mut g.tls.certificate,
            v.parse(certificate_and_key).map(Some),
        );
    }),
    optional("origin_name", Text("NAME"), "app.internal")
        .unset("the host in the URL")
        .help("TLS name of the origin: SNI and the name its certificate must have")
        .sets(|g, v, m| m.put(&mut g.tls.name, v.parse(server_name).map(Some))),
    optional("origin_host", Text("HOST"), "app.internal")
        .unset("the client's Host")
        .help("Host header sent to the origin")
        .more(
            "For backends that know themselves by another name only. The client's Host is sent in \
             X-Forwarded-Host and Forwarded, and remains part of the cache key.",
        )
        .sets(|g, v, m| m.put(&mut g.host, v.parse(host_name).map(Some))),
    opt("origin_http2", Switch, "false")
        .example("true")
        .help("HTTP/2 to the origin")
        .more(
            "Many requests share a connection. With https URLs it is negotiated, with HTTP/1.1 as \
             the alternative; with http URLs the origin must support it without negotiation \
             (prior knowledge). Upgrades (WebSocket) use HTTP/1.1.",
        )
        .sets(|g, v, m| m.put(&mut g.http2, v.switch())),
    optional("php_root", Text("DIRECTORY"), "/var/www/html")
        .unset("none; required for `fastcgi://` origins")
        .help("Document root of PHP scripts and their static files")
        .more(
            "An existing script runs with the rest of the path as PATH_INFO. A file that is no source \
             code is sent by Microcache itself. All other paths go to the index script, except those \
             with a segment that ends in `.php`, which are a 404. Nothing of a directory whose own \
             `.htaccess` denies all is run or sent (403). php-fpm must see the same path.",
        )
        .sets(|g, v, m| g.php.root = m.ok(v.parse(document_root)).or(g.php.root.take())),
    opt("php_index", Text("FILE"), "index.php")
        .help("Index script, which also gets paths that name no script and no file")
        .sets(|g, v, m| m.put(&mut g.php.index, v.parse(script_name))),
    opt(
        "php_deny",
        List("PATTERN"),
        r#"["*/wp-content/uploads/*", "*/wp-content/blogs.dir/*", "/files/*", "*/sites/*/files/*", "*/images/*", "*/vendor/*"]"#,
    )
    .help("Paths where no PHP script runs (403): those of uploads and libraries")
    .more(
        "`*` matches any run of characters. The default has the directories of WordPress, Drupal and \
         MediaWiki. Add every directory that the application writes uploads to.",
    )
    .sets(set_denied),
    opt("fastcgi_keep_alive", Switch, "false")
        .example("true")
        .help("Keep-alive on FastCGI connections")
        .more("An idle connection occupies a worker of php-fpm, so only with more workers than `max_concurrent`.")
        .sets(|g, v, m| m.put(&mut g.php.keep_alive, v.switch())),
    optional(
        "health_check",
        Table("health check settings"),
        r#"{ path = "/healthz", interval = "5s" }"#,
    )
    .unset("none: servers are judged by their responses")
    .help("Active health checks of origin servers (backends)")
    .sets(set_health_check),
];

/// Options of health checks.
pub(in crate::config) const HEALTH_CHECK: &[Opt<HealthCheck>] = &[
    opt("path", Text("PATH"), "/")
        .example("/healthz")
        .help("Path requested from the server")
        .sets(|h, v, m| m.put(&mut h.path, v.parse(path))),
    opt("method", Text("METHOD"), "GET")
        .example("HEAD")
        .help("Method of the request: GET or HEAD")
        .sets(|h, v, m| {
            let is_head = v.choice(&[("GET", false), ("HEAD", true)]);
            let method = is_head.map(|is_head| if is_head { Method::HEAD } else { Method::GET });
            m.put(&mut h.method, method);
        }),
    optional("host", Text("HOST"), "health.internal")
        .unset("`origin_host`, or the host in the URL")
        .help("Host header of the request")
        .sets(|h, v, m| m.put(&mut h.host, v.parse(host_name).map(Some))),
    opt("interval", Duration, "5s")
        .help("Time between two checks of a server")
        .sets(|h, v, m| m.put(&mut h.interval, v.duration(&WAIT))),
    opt("timeout", Duration, "2s")
        .help("Timeout of a check")
        .more("Must not be longer than the interval.")
        .sets(|h, v, m| m.put(&mut h.timeout, v.duration(&WAIT))),
    opt("expect", Text("STATUS"), "200-399")
        .example("200-299")
        .help("Status code or range of a healthy server")
        .sets(|h, v, m| m.put(&mut h.expect, v.parse(status_range))),
    opt("rise", Number, "2")
        .help("Consecutive good checks that bring a server back")
        .sets(|h, v, m| m.put(&mut h.rise, v.count(1..=1000).map(|n| n as u32))),
    opt("fall", Number, "3")
        .help("Consecutive failed checks that take a server out")
        .sets(|h, v, m| m.put(&mut h.fall, v.count(1..=1000).map(|n| n as u32))),
];

fn set_servers(servers: &mut Vec<ServerSettings>, value: &Value, mistakes: &mut Mistakes) {
    servers.clear();
    for item in value.items() {
        let Some(server) = read_server(item, mistakes) else {
            continue;
        };
        if servers.iter().any(|other| other.address == server.address) {
            let what = format!("{} is listed twice", server.address);
            mistakes
                .note(Mistake::new(&item.place, what).remedy("remove one, or give it a weight"));
        }
        if servers
            .first()
            .is_some_and(|first| first.path != server.path)
        {
            let what = "the servers of a group have different paths";
            mistakes.note(Mistake::new(&item.place, what).remedy("define a group for each path"));
        }
        servers.push(server);
    }
    if value.items().is_empty() {
        mistakes.note(Mistake::new(&value.place, "no server").remedy("list at least one URL"));
    } else if !servers.is_empty() && servers.iter().all(|server| server.backup) {
        mistakes.note(Mistake::new(
            &value.place,
            "every server is a backup: at least one must not be",
        ));
    }
}

fn read_server(value: &Value, mistakes: &mut Mistakes) -> Option<ServerSettings> {
    let mut server = ServerSettings::new("", 0);
    set_defaults(SERVER_ENTRY, &mut server);
    if value.is_text() {
        let url = mistakes.ok(value.parse(OriginUrl::parse))?;
        server.address = url.address;
        server.protocol = url.protocol;
        server.path = url.path;
        return Some(server);
    }
    let table = mistakes.ok(value.table())?;
    table.apply(SERVER_ENTRY, &mut server, mistakes);
    if table.get("url").is_none() {
        mistakes.note(Mistake::new(&value.place, "a server without `url`"));
    }
    table.refuse_rest(mistakes);
    let has_address = !matches!(server.address, ServerAddress::Tcp { port: 0, .. });
    has_address.then_some(server)
}

fn set_denied(group: &mut GroupSettings, value: &Value, mistakes: &mut Mistakes) {
    let patterns = value.items().iter();
    let denied = patterns.filter_map(|item| mistakes.ok(item.parse(denied_path)));
    group.php.deny = denied.collect();
}

fn denied_path(text: &str) -> Result<String, String> {
    if text.starts_with(['/', '*']) {
        Ok(text.to_owned())
    } else {
        Err("write a path that begins with `/` or `*`, such as \"/uploads/*\"".to_owned())
    }
}

/// An existing directory, as an absolute path: that of php-fpm's own directory would be another.
fn document_root(text: &str) -> Result<PathBuf, String> {
    let folder = folder(text)?;
    std::path::absolute(folder).map_err(|error| format!("cannot use the directory: {error}"))
}

fn script_name(text: &str) -> Result<String, String> {
    let stem = text.strip_suffix(".php").unwrap_or_default();
    if stem.is_empty() || text.contains('/') {
        return Err("write a file name that ends in .php, such as \"index.php\"".to_owned());
    }
    Ok(text.to_owned())
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
        Err(_) => Err("write a host name or an address".to_owned()),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    match OriginUrl::parse(&format!("http://{text}")) {
        Ok(url) if !url.is_socket() && !text.contains('/') => Ok(text.to_owned()),
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

pub(super) fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 100 <= first && first <= last && last <= 599 => Ok(first..=last),
        _ => Err("write one status or a range, such as \"200\" or \"200-399\"".to_owned()),
    }
}
