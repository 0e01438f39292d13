//! Options of the push cache.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use microcache_push::{Prefix, Site, Sync};

use super::super::option::{About, Form, Opt, Unset};
use super::super::push::{Chosen, PushConfig};

const MEMORY: RangeInclusive<u64> = 1 << 16..=1 << 50;
const DOCUMENT: RangeInclusive<u64> = 1 << 10..=1 << 28;

/// Options of the push cache.
pub(in crate::config) const PUSH: &[Opt<PushConfig>] = &[
    Opt {
        about: About {
            name: "push",
            form: Form::List("PREFIX"),
            unset: Unset::Says("no documents"),
            example: r#"["/live/"]"#,
            help: "Take documents under these paths, and tell subscribers of every change",
            more: "What is put there is answered from memory, and no origin is asked. [docs/push.md](push.md) says how documents are \
                   published, watched and kept.",
        },
        set: |push, v, m| {
            let prefixes = v
                .items()
                .iter()
                .filter_map(|item| m.ok(item.parse(parse_prefix)));
            push.prefixes = prefixes.collect();
            push.place = Some(v.place.clone());
        },
    },
    Opt {
        about: About {
            name: "push_token_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("none: nobody may publish"),
            example: r#""/etc/microcache/push-token""#,
            help: "A file with the secret that those carry who publish documents",
            more: "As `Authorization: Bearer SECRET`. Its first line counts, of 16 characters at least. It is read again by a reload.",
        },
        set: |push, v, m| {
            if let Some(path) = m.ok(v.text()) {
                push.token_file = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "push_private",
            form: Form::List("PREFIX"),
            unset: Unset::Says("everybody reads all documents"),
            example: r#"["/live/private/"]"#,
            help: "Those of these paths whose documents only those read who show that they may",
            more: "By GET, in event streams and over WebSocket, and whatever pattern reaches there. Each is one of `push`, or begins with one. Who publishes reads \
                   everything; others by `push_reader_token_file` or `push_reader_key_file`, see [docs/push.md](push.md#documents-that-are-private).",
        },
        set: |push, v, m| {
            for item in v.items() {
                if let Some(prefix) = m.ok(item.parse(parse_prefix)) {
                    push.settings.private.push(prefix);
                    push.private_places.push(item.place.clone());
                }
            }
        },
    },
    Opt {
        about: About {
            name: "push_reader_token_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("none"),
            example: r#""/etc/microcache/push-reader-token""#,
            help: "A file with a secret; who has it reads all documents that are private",
            more: "As `Authorization: Bearer SECRET`. It is read again by a reload.",
        },
        set: |push, v, m| {
            if let Some(path) = m.ok(v.text()) {
                push.reader_token_file = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "push_reader_key_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("none"),
            example: r#""/etc/microcache/push-reader-key""#,
            help: "A file with the key that tokens (JWT) are signed with, which say what of the private documents may be read",
            more: "A secret of 32 bytes at least for HS256, HS384 or HS512, or a public key as PEM. A token says `{\"microcache\": {\"read\": [\"/live/private/7/*\"]}}`, \
                   and should say `exp`: its streams end then. The file is read again by a reload.",
        },
        set: |push, v, m| {
            if let Some(path) = m.ok(v.text()) {
                push.reader_key_file = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "push_directory",
            form: Form::Text("DIRECTORY"),
            unset: Unset::Says("where services keep their state"),
            example: r#""/var/lib/microcache/push""#,
            help: "Where documents are written down, and what is published to a Mercure hub, or `none`",
            more: "What was answered with success is there after a restart, and after the process was killed. The directory is made if it \
                   is missing; one process uses it at a time. It is `push` in systemd's `STATE_DIRECTORY`, in `XDG_STATE_HOME/microcache` or in \
                   `~/.local/state/microcache`. With `none`, documents end with the process. A hub without documents keeps what is published \
                   in memory unless a directory is named.",
        },
        set: |push, v, m| {
            if let Some(path) = m.ok(v.text()) {
                push.chosen_directory = Some(match path {
                    "none" => Chosen::Nowhere,
                    path => Chosen::There(PathBuf::from(path)),
                });
            }
        },
    },
    Opt {
        about: About {
            name: "push_sync",
            form: Form::Text("WHEN"),
            unset: Unset::Is(r#""always""#),
            example: r#""always""#,
            help: "When a change counts as written: `always` on the disk, or `never`",
            more: "`always`: before it is answered, it is on the disk (fdatasync), and outlives a power failure; changes that come \
                   together are written together. `never`: the system has it, and it outlives this process.",
        },
        set: |push, v, m| {
            m.put(
                &mut push.settings.sync,
                v.choice(&[("always", Sync::Always), ("never", Sync::Never)]),
            );
        },
    },
    Opt {
        about: About {
            name: "push_redis",
            form: Form::List("URL"),
            unset: Unset::Says("none: this process alone keeps them"),
            example: r#""redis://user:password@documents:6379/0""#,
            help: "Keep documents in this Redis or Valkey server, for all nodes that name it",
            more: "A change on one node is an event on all. `rediss://` is TLS, `unix://` a socket. Nothing is written to `push_directory` then. \
                   Set `maxmemory-policy noeviction` and `appendonly yes` there: [docs/push.md](push.md#several-nodes) says why.",
        },
        set: |push, v, m| push.redis.urls = v.each(m, |item| item.text().map(str::to_owned)),
    },
    Opt {
        about: About {
            name: "push_redis_cluster",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "The servers named by `push_redis` are some of a cluster",
            more: "All documents lie on one of them.",
        },
        set: |push, v, m| m.put(&mut push.redis.cluster, v.switch()),
    },
    Opt {
        about: About {
            name: "push_redis_ca",
            form: Form::Text("FILE"),
            unset: Unset::Says("the system's certificates"),
            example: r#""/etc/microcache/redis-ca.pem""#,
            help: "Certificates (PEM) that vouch for the server named by `push_redis`",
            more: "",
        },
        set: |push, v, m| {
            if let Some(path) = m.ok(v.text()) {
                push.redis_ca = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "push_memory",
            form: Form::Size,
            unset: Unset::Is(r#""64MiB""#),
            example: r#""64MiB""#,
            help: "What documents may take in memory; beyond it none is taken (507)",
            more: "They are never evicted: nobody could be asked for them again. It is beside `memory`. Each takes its bytes and half a kilobyte; up to 16 KiB, its bytes twice.",
        },
        set: |push, v, m| m.put(&mut push.settings.memory, v.size(&MEMORY)),
    },
    Opt {
        about: About {
            name: "push_max_document",
            form: Form::Size,
            unset: Unset::Is(r#""1MiB""#),
            example: r#""1MiB""#,
            help: "The largest document, batch or patch (413)",
            more: "What is being published at one time may take sixteen times that.",
        },
        set: |push, v, m| m.put(&mut push.settings.max_document, v.size(&DOCUMENT)),
    },
    Opt {
        about: About {
            name: "push_history",
            form: Form::Number,
            unset: Unset::Is("1"),
            example: "100",
            help: "How many versions of each document are remembered for subscribers who come back",
            more: "With 1, who was away gets the latest version. With more, every change that is remembered, and an event `gap` \
                   where some are not any more. With `push_redis` 1000 at most: say the same on all nodes.",
        },
        set: |push, v, m| m.put(&mut push.settings.history, v.count(1..=100_000)),
    },
    Opt {
        about: About {
            name: "push_conditions",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Refuse changes that do not say which version they are meant for (428)",
            more: "By `If-Match` or `If-None-Match`, so that nobody overwrites what somebody else has put meanwhile.",
        },
        set: |push, v, m| m.put(&mut push.settings.conditions, v.switch()),
    },
    Opt {
        about: About {
            name: "push_allow_origins",
            form: Form::List("ORIGIN"),
            unset: Unset::Says("none: pages of this site only"),
            example: r#"["https://shop.example"]"#,
            help: "The other sites whose pages may read documents and subscribe, as `https://shop.example`, or `*`",
            more: "Browsers are told so (`Access-Control-Allow-Origin`), and a WebSocket is opened for them. Pages of a site that is named may publish too, if \
                   they have the secret; those that only `*` lets in may not. Cookies count for documents that are private only, and only from sites that are named.",
        },
        set: |push, v, m| {
            let sites = v
                .items()
                .iter()
                .filter_map(|item| m.ok(item.parse(parse_site)));
            push.settings.allow_origins = sites.collect();
        },
    },
    Opt {
        about: About {
            name: "push_max_subscribers",
            form: Form::Number,
            unset: Unset::Is("65536"),
            example: "65536",
            help: "Who may subscribe to documents at a time (503)",
            more: "`max_tunnels` bounds them together with other connections without an end.",
        },
        set: |push, v, m| m.put(&mut push.settings.max_subscribers, v.count(1..=1 << 24)),
    },
    Opt {
        about: About {
            name: "watch_max_pages",
            form: Form::Number,
            unset: Unset::Is("256"),
            example: "256",
            help: "Different pages that may be watched at a time, where `watch` allows it (503)",
            more: "One address begins to watch a quarter of them at most. However many watch a page, it is followed once. With `watch = \"refresh\"` this is also how many requests a second those who \
                   watch can cost the application at most.",
        },
        set: |push, v, m| m.put(&mut push.max_pages, v.count(1..=1 << 15)),
    },
];

fn parse_site(text: &str) -> Result<Site, String> {
    Site::parse(text).ok_or_else(|| {
        "an origin is a scheme and a host, such as https://shop.example or http://localhost:3000; or `*`".to_owned()
    })
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    Prefix::parse(text).map_err(|why| why.to_string())
}
