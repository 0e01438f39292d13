//! Options of the tiers below memory.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use microcache_store::memcached::{PageKey, ServerAddress};

use super::super::Config;
use super::super::option::Form::{Duration, List, Number, Size, Switch, Text};
use super::super::option::{Opt, opt, optional};
use super::super::units::{parse_size, size_forms};
use super::WAIT;

const DISK: RangeInclusive<u64> = 1 << 20..=1 << 50;
const OBJECT: RangeInclusive<u64> = 1 << 10..=1 << 40;
const LIFT: RangeInclusive<u64> = 0..=1 << 30;
const QUEUE: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Options of the tiers below memory.
pub(in crate::config) const TIERS: &[Opt<Config>] = &[
    optional("disk", Text("PATH,SIZE"), "/var/cache/microcache,10GiB")
        .help("Disk tier: directory and maximum size")
        .more(
            "Entries survive a restart and may exceed memory. The directory is created if \
             missing; one process uses it at a time.",
        )
        .sets(|c, v, m| m.put(&mut c.tiers.disk, v.parse(parse_disk).map(Some))),
    optional("disk_max_object", Size, "1GiB")
        .unset("a quarter of the disk's size")
        .help("Maximum size of a body stored on disk")
        .more("A body larger than memory allows is written to disk as it arrives.")
        .sets(|c, v, m| m.put(&mut c.tiers.disk_max_object, v.size(&OBJECT).map(Some))),
    opt("disk_max_files", Number, "1000000")
        .help("Maximum files on disk; each takes about sixty bytes of memory")
        .sets(|c, v, m| {
            m.put(
                &mut c.tiers.disk_max_files,
                v.count(1..=1_000_000_000).map(|files| files as u64),
            );
        }),
    optional("disk_queue", Size, "256MiB")
        .unset("four of the largest bodies that memory takes, at least 64MiB")
        .help("Memory for large bodies waiting to be written to disk")
        .more(
            "Bodies too large for memory are written as they arrive, without waiting for the \
             disk: one that arrives faster than the disk can write, and fills its share of the \
             queue, is not stored, and counted. It should be four times the largest `max_object`.",
        )
        .sets(|c, v, m| m.put(&mut c.tiers.disk_queue, v.size(&QUEUE).map(Some))),
    opt("disk_lift", Size, "16KiB")
        .help("Maximum size of a body promoted from disk to memory")
        .more(
            "Larger ones are sent from their files by the kernel (sendfile); memory holds their \
             heads only.",
        )
        .sets(|c, v, m| m.put(&mut c.tiers.disk_lift, v.size(&LIFT))),
    opt("memcached", List("HOST:PORT"), "[]")
        .example(r#"["cache1:11211", "cache2:11211"]"#)
        .help("Memcached tier: servers that store responses too")
        .more(
            "Several form a pool, with the key distribution of libmemcached (ketama); \
             `HOST:PORT:WEIGHT` gives a server more keys. Processes that share a pool coalesce \
             their requests to the origin.",
        )
        .sets(|c, v, m| {
            c.tiers.memcached = v.each(m, |item| {
                item.parse(|text| ServerAddress::from_str(text).map_err(|error| error.to_string()))
            });
        }),
    opt("memcached_timeout", Duration, "50ms")
        .help("Timeout of a memcached request")
        .more("After two consecutive failures a server is taken out, and retried later.")
        .sets(|c, v, m| m.put(&mut c.tiers.memcached_timeout, v.duration(&WAIT))),
    opt("memcached_max_object", Size, "8MiB")
        .help("Maximum size of a body stored in memcached")
        .more("Bodies larger than an item are split into several.")
        .sets(|c, v, m| m.put(&mut c.tiers.memcached_max_object, v.size(&OBJECT))),
    optional("memcached_pages", Text("KEY"), "$uri?$args")
        .help("Key of pages that the backend itself stores in memcached")
        .more(
            "Like nginx's memcached module; the key may contain `$uri`, `$args`, `$is_args`, \
             `$request_uri` and `$host`. These pages are read, never written, and cached in \
             memory as the route says.",
        )
        .sets(|c, v, m| {
            let key = |text: &str| PageKey::from_str(text).map_err(|error| error.to_string());
            m.put(&mut c.tiers.memcached_pages, v.parse(key).map(Some));
        }),
    opt("memcached_pages_type", Text("TYPE"), "text/html")
        .example("text/html; charset=utf-8")
        .help("Content-Type of `memcached_pages` without an extension such as .css, .js, .png")
        .sets(|c, v, m| m.put(&mut c.tiers.memcached_pages_type, v.parse(parse_type))),
    opt("redis", List("URL"), "[]")
        .example(r#""redis://user:password@cache:6379/0""#)
        .help("Redis tier: Redis or Valkey server that stores responses too")
        .more(
            "`rediss://` is TLS, `unix://` a socket, `redis-sentinel://HOST:PORT,HOST:PORT/MASTER` \
             the [master that sentinels know](tiers.md#redis). Processes that share it coalesce \
             their requests to the origin.",
        )
        .sets(|c, v, m| c.tiers.redis = v.each(m, |item| item.text().map(str::to_owned))),
    opt("redis_cluster", Switch, "false")
        .example("true")
        .help("Cluster mode for `redis`")
        .sets(|c, v, m| m.put(&mut c.tiers.redis_cluster, v.switch())),
    optional("redis_ca", Text("FILE"), "/etc/microcache/redis-ca.pem")
        .unset("the system's roots")
        .help("File (PEM) with CA certificates to verify `redis`")
        .sets(|c, v, m| m.put(&mut c.tiers.redis_ca, v.path().map(Some))),
    opt("redis_timeout", Duration, "50ms")
        .help("Timeout of a Redis request")
        .more("After three consecutive failures the server is taken out, and retried later.")
        .sets(|c, v, m| m.put(&mut c.tiers.redis_timeout, v.duration(&WAIT))),
    opt("redis_max_object", Size, "8MiB")
        .help("Maximum size of a response stored in Redis (head and body)")
        .sets(|c, v, m| m.put(&mut c.tiers.redis_max_object, v.size(&OBJECT))),
    opt("claim_timeout", Duration, "5s")
        .help("Lifetime of a claim: maximum wait for another process's origin fetch")
        .more(
            "Of several processes with one memcached pool or Redis, one fetches and the others \
             wait for its result. If it dies, they wait this long and then fetch themselves. Set \
             it longer than a page takes to render.",
        )
        .sets(|c, v, m| m.put(&mut c.tiers.claim_timeout, v.duration(&WAIT))),
    opt("tier_queue", Size, "64MiB")
        .help("Memory for responses waiting to be written to one tier")
        .more(
            "Requests never wait for a slow tier: responses that exceed the queue are not \
             written, and counted.",
        )
        .sets(|c, v, m| m.put(&mut c.tiers.queue, v.size(&QUEUE))),
];

fn parse_type(text: &str) -> Result<String, String> {
    let is_type = text.contains('/') && text.bytes().all(|b| matches!(b, b' '..=b'~'));
    is_type
        .then(|| text.to_owned())
        .ok_or_else(|| "write a media type, such as \"text/html; charset=utf-8\"".to_owned())
}

fn parse_disk(text: &str) -> Result<(PathBuf, u64), String> {
    const FORM: &str = "write a directory and a size, such as \"/var/cache/microcache,10GiB\"";
    let (path, size) = text.rsplit_once(',').ok_or(FORM)?;
    let size = size.trim();
    let size = parse_size(size)
        .ok_or_else(|| format!("write a directory and a size: {}", size_forms(size)))?;
    if path.trim().is_empty() {
        return Err(FORM.to_owned());
    }
    if !DISK.contains(&size) {
        return Err("the size must be from 1MiB to 1024TiB".to_owned());
    }
    Ok((PathBuf::from(path.trim()), size))
}
