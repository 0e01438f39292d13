//! Options of the push cache.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use microcache_push::{AllowedOrigin, Prefix, SyncPolicy};

use super::super::forward_auth::ForwardAuth;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{self, List, Number, Size, Switch, Text};
use super::super::option::{Opt, opt, optional};
use super::super::push::{DirectoryChoice, PushConfig};
use super::super::raw::Value;
use super::access::read_forward_auth;

const MEMORY: RangeInclusive<u64> = 1 << 16..=1 << 50;
const DOCUMENT: RangeInclusive<u64> = 1 << 10..=1 << 28;

/// Options of the push cache.
pub(in crate::config) const PUSH: &[Opt<PushConfig>] = &[
    optional("push", List("PREFIX"), r#"["/live/"]"#)
        .unset("no documents")
        .help("Path prefixes of documents that are published here and pushed live")
        .more(
            "Documents are published with PUT and answered from memory without asking an origin; \
             subscribers receive every change. See [push](push.md).",
        )
        .sets(|push, v, m| {
            let prefixes = v
                .items()
                .iter()
                .filter_map(|item| m.ok(item.parse(parse_prefix)));
            push.prefixes = prefixes.collect();
            push.place = Some(v.place.clone());
        }),
    optional(
        "push_token_file",
        Text("FILE"),
        "/etc/microcache/push-token",
    )
    .unset("none: publishing is disabled")
    .help("File with the publishers' bearer token")
    .more(
        "Sent as `Authorization: Bearer SECRET`. The token is the first line of the file, at \
             least 16 characters. It is read again on reload.",
    )
    .sets(|push, v, m| m.put(&mut push.token_file, v.file().map(Some))),
    optional("push_private", List("PREFIX"), r#"["/live/private/"]"#)
        .unset("none: all documents are public")
        .help("Path prefixes of private documents (readers need a token)")
        .more(
            "Applies to GET, event streams, WebSockets and every pattern that matches below these \
             paths. Each is one of `push` or begins with one. Publishers read everything; other \
             readers need a token, see `push_reader_token_file`, `push_reader_key_file` and \
             [push](push.md#documents-that-are-private).",
        )
        .sets(|push, v, m| {
            for item in v.items() {
                if let Some(prefix) = m.ok(item.parse(parse_prefix)) {
                    push.settings.private.push(prefix);
                    push.private_places.push(item.place.clone());
                }
            }
        }),
    optional(
        "push_reader_token_file",
        Text("FILE"),
        "/etc/microcache/push-reader-token",
    )
    .help("File with a bearer token that may read every private document")
    .more("Sent as `Authorization: Bearer SECRET`. It is read again on reload.")
    .sets(|push, v, m| m.put(&mut push.reader_token_file, v.file().map(Some))),
    optional(
        "push_reader_key_file",
        Text("FILE"),
        "/etc/microcache/push-reader-key",
    )
    .help("File with the key that signs readers' tokens (JWT) for private documents")
    .more(
        "A secret of at least 32 bytes for HS256, HS384 or HS512, or a public key in PEM \
             form. The claim `{\"microcache\": {\"read\": [\"/live/private/7/*\"]}}` lists the \
             paths; streams end when the token expires (`exp`). The file is read again on reload.",
    )
    .sets(|push, v, m| m.put(&mut push.reader_key_file, v.file().map(Some))),
    optional(
        "push_forward_auth",
        Form::Table("url"),
        r#"{ url = "http://127.0.0.1:3000/may-read", cache = "5s" }"#,
    )
    .unset("tokens only")
    .help("Server that names the private documents that a client may read")
    .more(
        "It is asked when a client without a token reads or subscribes. Its response with 2xx names \
         the documents in `Microcache-Read`. It has `url`, `timeout`, `cache` and `max_concurrent` \
         of [`forward_auth`](#forward_auth). See [push](push.md#ask-the-application).",
    )
    .sets(set_forward_auth),
    optional(
        "push_directory",
        Text("DIRECTORY"),
        "/var/lib/microcache/push",
    )
    .unset("the service's state directory")
    .help("Directory for documents and Mercure updates, or `none` for memory only")
    .more(
        "Every acknowledged change survives a restart and a crash. The directory is created \
             if missing; one process uses it at a time. The default is `push` in systemd's \
             `STATE_DIRECTORY`, in `XDG_STATE_HOME/microcache` or in `~/.local/state/microcache`. \
             With `none`, documents end with the process. A Mercure hub without documents keeps \
             its updates in memory unless a directory is set.",
    )
    .sets(|push, v, m| {
        if let Some(path) = m.ok(v.text()) {
            push.chosen_directory = Some(match path {
                "none" => DirectoryChoice::Off,
                path => DirectoryChoice::At(PathBuf::from(path)),
            });
        }
    }),
    opt("push_sync", Text("always|never"), "always")
        .help("Durability of a change: `always` (fdatasync before the response) or `never`")
        .more(
            "`always`: acknowledged changes survive a power failure; concurrent changes share one \
             write. `never`: they survive a crash of this process only.",
        )
        .sets(|push, v, m| {
            m.put(
                &mut push.settings.sync,
                v.choice(&[("always", SyncPolicy::Always), ("never", SyncPolicy::Never)]),
            );
        }),
    optional(
        "push_redis",
        List("URL"),
        r#""redis://user:password@documents:6379/0""#,
    )
    .unset("none: documents and updates are local to this process")
    .help("Redis or Valkey server for documents and Mercure updates of several nodes")
    .more(
        "A change or update on one node reaches the subscribers of all. The forms of the URL are those of \
             `redis`. `push_directory` is not used then. Set `maxmemory-policy noeviction` and \
             `appendonly yes` on that server, see [push](push.md#several-nodes).",
    )
    .sets(|push, v, m| push.redis.urls = v.each(m, |item| item.text().map(str::to_owned))),
    opt("push_redis_cluster", Switch, "false")
        .example("true")
        .help("Cluster mode for `push_redis`")
        .more("All documents and updates lie on one node of the cluster.")
        .sets(|push, v, m| m.put(&mut push.redis.cluster, v.switch())),
    optional(
        "push_redis_ca",
        Text("FILE"),
        "/etc/microcache/redis-ca.pem",
    )
    .unset("the system's roots")
    .help("File (PEM) with CA certificates to verify `push_redis`")
    .sets(|push, v, m| m.put(&mut push.redis_ca, v.file().map(Some))),
    opt("push_memory", Size, "64MiB")
        .help("Memory for documents; above it publishing fails with 507")
        .more(
            "In addition to `memory`; documents are never evicted. A document costs its size + \
             1 KiB (twice its size up to 16 KiB), rounded up as the allocator does.",
        )
        .sets(|push, v, m| m.put(&mut push.settings.memory, v.size(&MEMORY))),
    opt("push_max_document", Size, "1MiB")
        .help("Maximum size of a document, batch or patch; larger ones get 413")
        .more("Publications in progress may use sixteen times as much memory.")
        .sets(|push, v, m| m.put(&mut push.settings.max_document, v.size(&DOCUMENT))),
    opt("push_history", Number, "1")
        .example("100")
        .help("Versions kept per document for reconnecting subscribers")
        .more(
            "With 1, a reconnecting subscriber gets the latest version. With more, it gets every \
             change that is kept, and a `gap` event where changes are missing. With `push_redis` \
             at most 1000, and the same value on all nodes.",
        )
        .sets(|push, v, m| m.put(&mut push.settings.history, v.count(1..=100_000))),
    opt("push_conditions", Switch, "false")
        .example("true")
        .help("Mandatory `If-Match` or `If-None-Match` on changes (428 without)")
        .more("Prevents lost updates when several publishers change the same document.")
        .sets(|push, v, m| m.put(&mut push.settings.conditions, v.switch())),
    optional(
        "push_allow_origins",
        List("ORIGIN"),
        r#"["https://shop.example"]"#,
    )
    .unset("none: pages of this site only")
    .help("Other sites whose pages may read and subscribe (CORS): origins or `*`")
    .more(
        "Sets `Access-Control-Allow-Origin` and admits WebSockets from these sites. Pages of \
             a listed site may also publish if they have the token; those admitted by `*` may \
             not. Cookies count only for private documents, and only from listed sites.",
    )
    .sets(|push, v, m| {
        let sites = v
            .items()
            .iter()
            .filter_map(|item| m.ok(item.parse(parse_site)));
        push.settings.allow_origins = sites.collect();
    }),
    opt("push_max_subscribers", Number, "65536")
        .help("Maximum subscribers to documents at a time; above it 503")
        .more("`max_tunnels` limits them together with other long-lived connections.")
        .sets(|push, v, m| m.put(&mut push.settings.max_subscribers, v.count(1..=1 << 24))),
    opt("watch_max_pages", Number, "256")
        .help("Maximum different pages watched at a time (`watch`); above it 503")
        .more(
            "One client address starts at most a quarter of them; at the limit the newest page of the \
             address with the most ends in favour of one with fewer. A page is followed once, \
             however many subscribers watch it. With `watch = \"refresh\"` this is also the \
             maximum number of requests per second that watching causes at the origin.",
        )
        .sets(|push, v, m| m.put(&mut push.max_pages, v.count(1..=1 << 15))),
];

fn parse_site(text: &str) -> Result<AllowedOrigin, String> {
    AllowedOrigin::parse(text).ok_or_else(|| {
        "write a scheme and a host, such as https://shop.example or http://localhost:3000, or `*`".to_owned()
    })
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    Prefix::parse(text).map_err(|why| why.to_string())
}

fn set_forward_auth(push: &mut PushConfig, value: &Value, mistakes: &mut Mistakes) {
    for name in ["copy_headers", "session_cookie"] {
        if let Some(value) = value.entry(name) {
            let what = format!("`push_forward_auth` has no `{name}`");
            mistakes.note(Mistake::new(&value.place, what).remedy("remove it"));
        }
    }
    let option = ("push_forward_auth", "http://127.0.0.1:3000/may-read");
    let auth = read_forward_auth(option, value, mistakes);
    push.read_auth = auth.map(ForwardAuth::of_readers);
}
