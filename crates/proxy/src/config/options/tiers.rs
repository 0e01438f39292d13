//! Options of the tiers behind memory.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use microcache_store::memcached::{PageKey, ServerAddress};

use super::super::Config;
use super::super::option::{About, Form, Opt, Unset};
use super::super::units::{parse_size, size_forms};
use super::WAIT;

const DISK: RangeInclusive<u64> = 1 << 20..=1 << 50;
const OBJECT: RangeInclusive<u64> = 1 << 10..=1 << 40;
const LIFT: RangeInclusive<u64> = 0..=1 << 30;
const QUEUE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Options of the tiers behind memory.
pub(in crate::config) const TIERS: &[Opt<Config>] = &[
    Opt {
        about: About {
            name: "disk",
            form: Form::Text("PATH,SIZE"),
            unset: Unset::Says("no disk"),
            example: r#""/var/cache/microcache,10GiB""#,
            help: "Keep responses in this directory too, up to this size",
            more: "They survive a restart, and may be larger than memory allows. The directory is made if it is \
                   missing; one process uses it at a time.",
        },
        set: |c, v, m| m.put(&mut c.tiers.disk, v.parse(parse_disk).map(Some)),
    },
    Opt {
        about: About {
            name: "disk_max_object",
            form: Form::Size,
            unset: Unset::Says("a quarter of the disk's size"),
            example: r#""1GiB""#,
            help: "The largest body that is kept on disk",
            more: "A body that is larger than memory allows is written to disk while it arrives.",
        },
        set: |c, v, m| m.put(&mut c.tiers.disk_max_object, v.size(&OBJECT).map(Some)),
    },
    Opt {
        about: About {
            name: "disk_max_files",
            form: Form::Number,
            unset: Unset::Is("1000000"),
            example: "1000000",
            help: "The most files on disk; each takes some fifty bytes of memory",
            more: "",
        },
        set: |c, v, m| {
            m.put(
                &mut c.tiers.disk_max_files,
                v.count(1..=1_000_000_000).map(|files| files as u64),
            );
        },
    },
    Opt {
        about: About {
            name: "disk_queue",
            form: Form::Size,
            unset: Unset::Says("four of the largest that memory takes, at least 64MiB"),
            example: r#""256MiB""#,
            help: "What may wait to be written to disk of bodies that are too large for memory",
            more: "They are written while they arrive, and nobody waits for the disk: a body may take as much of this as it \
                   leaves free for others, and one that comes faster than that is not kept, and counted. It should be four \
                   times the largest `max_object` of memory.",
        },
        set: |c, v, m| m.put(&mut c.tiers.disk_queue, v.size(&QUEUE).map(Some)),
    },
    Opt {
        about: About {
            name: "disk_lift",
            form: Form::Size,
            unset: Unset::Is(r#""16KiB""#),
            example: r#""16KiB""#,
            help: "Bodies up to this size are lifted from disk into memory",
            more: "Larger ones are sent from their files, by the kernel; memory then holds only their heads.",
        },
        set: |c, v, m| m.put(&mut c.tiers.disk_lift, v.size(&LIFT)),
    },
    Opt {
        about: About {
            name: "memcached",
            form: Form::List("HOST:PORT"),
            unset: Unset::Is("[]"),
            example: r#"["cache1:11211", "cache2:11211"]"#,
            help: "Keep responses in these memcached servers too",
            more: "Several are a pool: keys lie on the same ring as with libmemcached, `HOST:PORT:WEIGHT` gives a server \
                   more of them. Processes that share a pool send the origin one request for all of them.",
        },
        set: |c, v, m| {
            c.tiers.memcached = v.each(m, |item| {
                item.parse(|text| ServerAddress::from_str(text).map_err(|error| error.to_string()))
            });
        },
    },
    Opt {
        about: About {
            name: "memcached_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""50ms""#),
            example: r#""50ms""#,
            help: "How long a request waits for a memcached server",
            more: "After two failures in a row a server is left out, and tried again later.",
        },
        set: |c, v, m| m.put(&mut c.tiers.memcached_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "memcached_max_object",
            form: Form::Size,
            unset: Unset::Is(r#""8MiB""#),
            example: r#""8MiB""#,
            help: "The largest body that is kept in memcached",
            more: "What does not fit into one item is cut into several.",
        },
        set: |c, v, m| m.put(&mut c.tiers.memcached_max_object, v.size(&OBJECT)),
    },
    Opt {
        about: About {
            name: "memcached_pages",
            form: Form::Text("KEY"),
            unset: Unset::Says("they are not looked for"),
            example: r#""$uri?$args""#,
            help: "Serve pages that the application keeps in memcached under this key",
            more: "As nginx's memcached module does; nginx's variables `$uri`, `$args`, `$is_args`, `$request_uri` and `$host` make \
                   up the key. They are read and never written, and live in memory for as long as the route says.",
        },
        set: |c, v, m| {
            let key = |text: &str| PageKey::from_str(text).map_err(|error| error.to_string());
            m.put(&mut c.tiers.memcached_pages, v.parse(key).map(Some));
        },
    },
    Opt {
        about: About {
            name: "memcached_pages_type",
            form: Form::Text("TYPE"),
            unset: Unset::Is(r#""text/html""#),
            example: r#""text/html; charset=utf-8""#,
            help: "The Content-Type of such pages, unless their names end in .css, .js, .png and the like",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.tiers.memcached_pages_type, v.parse(parse_type)),
    },
    Opt {
        about: About {
            name: "redis",
            form: Form::List("URL"),
            unset: Unset::Is("[]"),
            example: r#""redis://user:password@cache:6379/0""#,
            help: "Keep responses in this Redis or Valkey server too",
            more: "`rediss://` is TLS, `unix://` a socket. Processes that share it send the origin one request for all of them.",
        },
        set: |c, v, m| c.tiers.redis = v.each(m, |item| item.text().map(str::to_owned)),
    },
    Opt {
        about: About {
            name: "redis_cluster",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "The servers named by `redis` are some of a cluster",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.tiers.redis_cluster, v.switch()),
    },
    Opt {
        about: About {
            name: "redis_ca",
            form: Form::Text("FILE"),
            unset: Unset::Says("the system's certificates"),
            example: r#""/etc/microcache/redis-ca.pem""#,
            help: "Certificates (PEM) that vouch for the Redis server",
            more: "",
        },
        set: |c, v, m| {
            m.put(
                &mut c.tiers.redis_ca,
                v.text().map(|path| Some(PathBuf::from(path))),
            );
        },
    },
    Opt {
        about: About {
            name: "redis_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""50ms""#),
            example: r#""50ms""#,
            help: "How long a request waits for Redis",
            more: "After three failures in a row the server is left out, and tried again later.",
        },
        set: |c, v, m| m.put(&mut c.tiers.redis_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "redis_max_object",
            form: Form::Size,
            unset: Unset::Is(r#""8MiB""#),
            example: r#""8MiB""#,
            help: "The largest response that is kept in Redis, head and body",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.tiers.redis_max_object, v.size(&OBJECT)),
    },
    Opt {
        about: About {
            name: "claim_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""5s""#),
            example: r#""5s""#,
            help: "How long one process may keep those it shares a tier with from asking the origin",
            more: "Of several processes with one memcached pool or Redis, one asks and the others wait for what it brings. If it \
                   dies, they wait this long and then ask for themselves. It should be longer than a page takes to render.",
        },
        set: |c, v, m| m.put(&mut c.tiers.claim_timeout, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "tier_queue",
            form: Form::Size,
            unset: Unset::Is(r#""64MiB""#),
            example: r#""64MiB""#,
            help: "Responses that may wait to be written to one tier",
            more: "Nobody waits for a slow tier: what comes on top of this is not written, and counted.",
        },
        set: |c, v, m| m.put(&mut c.tiers.queue, v.size(&QUEUE)),
    },
];

fn parse_type(text: &str) -> Result<String, String> {
    let is_type = text.contains('/') && text.bytes().all(|b| matches!(b, b' '..=b'~'));
    is_type
        .then(|| text.to_owned())
        .ok_or_else(|| "a media type, such as \"text/html; charset=utf-8\"".to_owned())
}

fn parse_disk(text: &str) -> Result<(PathBuf, u64), String> {
    const FORM: &str = "a directory and a size, such as \"/var/cache/microcache,10GiB\"";
    let (path, size) = text.rsplit_once(',').ok_or(FORM)?;
    let size = size.trim();
    let size =
        parse_size(size).ok_or_else(|| format!("a directory and a size: {}", size_forms(size)))?;
    if path.trim().is_empty() {
        return Err(FORM.to_owned());
    }
    if !DISK.contains(&size) {
        return Err("the size is from 1MiB to 1024TiB".to_owned());
    }
    Ok((PathBuf::from(path.trim()), size))
}
