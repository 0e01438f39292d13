//! Options of the server as a whole.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::super::Config;
use super::super::cidr::Cidr;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::raw::Value;
use super::{LIFETIME, WAIT};

const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 44;
const FILL_MEMORY: RangeInclusive<u64> = 1 << 16..=1 << 44;

/// Options of the server as a whole.
pub(in crate::config) const SERVER: &[Opt<Config>] = &[
    Opt {
        about: About {
            name: "listen",
            form: Form::List("ADDRESS"),
            unset: Unset::Says("127.0.0.1:8080, or with `acme` port 80 of all addresses"),
            example: r#"["127.0.0.1:8080", "[::1]:8080"]"#,
            help: "Where clients connect",
            more: "An IP address and a port; several are a list, and the flag may be repeated. \
                   `0.0.0.0:80` takes connections from everywhere.",
        },
        set: set_listen,
    },
    Opt {
        about: About {
            name: "threads",
            form: Form::Number,
            unset: Unset::Says("one per core"),
            example: "4",
            help: "How many threads serve",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.threads, v.count(1..=1024)),
    },
    Opt {
        about: About {
            name: "reload_on_change",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Read the configuration file and certificates again when they change",
            more: "They are looked at once a second, and taken when all have stayed the same for one. SIGHUP and `microcache reload` \
                   do the same at once. A file with mistakes changes nothing.",
        },
        set: |c, v, m| m.put(&mut c.reload_on_change, v.switch()),
    },
    Opt {
        about: About {
            name: "memory",
            form: Form::Size,
            unset: Unset::Is(r#""256MiB""#),
            example: r#""256MiB""#,
            help: "What stored responses may take",
            more: "Bodies, heads, keys and the index together. When it is full, what is asked for least goes first.",
        },
        set: |c, v, m| m.put(&mut c.memory, v.size(&MEMORY)),
    },
    Opt {
        about: About {
            name: "hit_for_miss",
            form: Form::Duration,
            unset: Unset::Is(r#""2s""#),
            example: r#""2s""#,
            help: "How long a url that turned out uncacheable is fetched without queuing",
            more: "Requests for one url wait for one fetch. When its response cannot be shared, they and all others \
                   go to the origin side by side for this long.",
        },
        set: |c, v, m| m.put(&mut c.hit_for_miss, v.millis(&LIFETIME)),
    },
    Opt {
        about: About {
            name: "remember_too_large",
            form: Form::Duration,
            unset: Unset::Is(r#""10m""#),
            example: r#""10m""#,
            help: "How long a url that is too large to be kept is remembered",
            more: "Meanwhile every request for it goes to the origin as it is, a range as a range.",
        },
        set: |c, v, m| m.put(&mut c.remember_too_large, v.millis(&LIFETIME)),
    },
    Opt {
        about: About {
            name: "stale_wait",
            form: Form::Duration,
            unset: Unset::Is(r#""2s""#),
            example: r#""2s""#,
            help: "How long visitors wait for the application where a stale response may be used if that fails",
            more: "Then they get the stale response, and the request goes on for those who come later.",
        },
        set: |c, v, m| m.put(&mut c.stale_wait, v.millis(&WAIT)),
    },
    Opt {
        about: About {
            name: "trusted_proxies",
            form: Form::List("BLOCK"),
            unset: Unset::Is("[]"),
            example: r#"["10.0.0.0/8", "::1"]"#,
            help: "Peers whose X-Forwarded-* and Forwarded are believed",
            more: "Addresses or blocks of them. From every other peer these fields are overwritten.",
        },
        set: set_trusted_proxies,
    },
    Opt {
        about: About {
            name: "proxy_protocol",
            form: Form::List("BLOCK"),
            unset: Unset::Is("[]"),
            example: r#"["10.0.0.0/8"]"#,
            help: "Peers that begin each connection with the PROXY protocol, version 1 or 2",
            more: "Load balancers that pass bytes on and do not look into them. Whom they name is the client from then on, \
                   in logs, limits and everywhere else. What such a peer sends without it is closed, and so is what anybody \
                   else sends with it.",
        },
        set: set_proxy_protocol,
    },
    Opt {
        about: About {
            name: "purge_from",
            form: Form::List("BLOCK"),
            unset: Unset::Is("[]"),
            example: r#"["127.0.0.1", "10.0.0.0/8"]"#,
            help: "Who may purge with PURGE and BAN, as plugins of applications do",
            more: "Addresses or blocks of them, where the application runs. From all others such requests are refused; if nobody \
                   is named they go to the application. Whoever a request came through has to be in it too.",
        },
        set: set_purge_from,
    },
    Opt {
        about: About {
            name: "max_waiters",
            form: Form::Number,
            unset: Unset::Is("10000"),
            example: "10000",
            help: "The most requests that wait for one fetch",
            more: "One address has a tenth of them at most; when there are as many, the newest of the address with most gives way: it gets the stale \
                   response, or 503. It never goes to the origin by itself.",
        },
        set: |c, v, m| m.put(&mut c.limits.max_waiters_per_fetch, v.count(0..=10_000_000)),
    },
    Opt {
        about: About {
            name: "max_fetches",
            form: Form::Number,
            unset: Unset::Is("10000"),
            example: "10000",
            help: "The most fetches at a time that others can wait for",
            more: "For the next one, the newest fetch of the address that leads most gives way, or itself: stale, or 503.",
        },
        set: |c, v, m| m.put(&mut c.limits.max_fetches, v.count(1..=10_000_000)),
    },
    Opt {
        about: About {
            name: "max_variants",
            form: Form::Number,
            unset: Unset::Is("8"),
            example: "8",
            help: "The most variants of one url that are kept",
            more: "Variants come from `Vary`. Above the bound the least recently used one leaves, one that nobody asked for twice first.",
        },
        set: |c, v, m| m.put(&mut c.limits.max_variants, v.count(1..=1000)),
    },
    Opt {
        about: About {
            name: "compress_queue",
            form: Form::Number,
            unset: Unset::Is("256"),
            example: "256",
            help: "The most bodies that wait to be compressed",
            more: "Above the bound what fewest ask for is sent as it is, until it is asked for again.",
        },
        set: |c, v, m| m.put(&mut c.limits.compress_queue, v.count(1..=100_000)),
    },
    Opt {
        about: About {
            name: "fill_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""5m""#),
            example: r#""5m""#,
            help: "How long a response may take to arrive and still be shared and stored",
            more: "Later than that it goes on to those who have it already, and the next request is a fetch of its own: \
                   a body that arrives drop by drop neither fills memory nor keeps others waiting.",
        },
        set: |c, v, m| m.put(&mut c.limits.fill_timeout, v.millis(&WAIT)),
    },
    Opt {
        about: About {
            name: "fill_memory",
            form: Form::Size,
            unset: Unset::Says("a quarter of `memory`"),
            example: r#""64MiB""#,
            help: "What bodies on their way may take, beside `memory`",
            more: "Each may have 32 KiB on top. When it is used up, larger bodies are passed on with little buffering, \
                   and are not stored. Clients that read slowly get half of it at most; beyond that, those who have taken \
                   nothing for longest are let go.",
        },
        set: |c, v, m| m.put(&mut c.limits.fill_memory, v.size(&FILL_MEMORY).map(Some)),
    },
    Opt {
        about: About {
            name: "slow_reader_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""2s""#),
            example: r#""2s""#,
            help: "How long one client may keep others waiting for a body that they share",
            more: "It matters for bodies that turned out too large to keep: the slowest of those who share one sets the pace. \
                   If the others have waited for so long altogether, and it took less than 128 KiB meanwhile, its connection \
                   is closed.",
        },
        set: |c, v, m| m.put(&mut c.limits.slow_reader_timeout, v.millis(&WAIT)),
    },
    Opt {
        about: About {
            name: "drain_delay",
            form: Form::Duration,
            unset: Unset::Is(r#""0s""#),
            example: r#""10s""#,
            help: "How long new connections are still served after SIGTERM",
            more: "`/v1/ready` answers 503 at once, and everything is served meanwhile, so that a load balancer takes this server out \
                   before its port closes: set it to longer than the balancer takes to notice. Each response carries \
                   `Connection: close`, and HTTP/2 connections are told to go (GOAWAY) with their next request. SIGINT, and a \
                   second SIGTERM, end the delay. An upgrade has none: the port stays open.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.timeouts.drain_delay,
                v.duration(&(Duration::ZERO..=*WAIT.end())),
            );
        },
    },
    Opt {
        about: About {
            name: "drain_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How long requests under way may take after SIGTERM",
            more: "It begins when `drain_delay` is over. Another signal ends the process at once.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.timeouts.drain,
                v.duration(&(Duration::ZERO..=*WAIT.end())),
            );
        },
    },
    Opt {
        about: About {
            name: "drain_stream_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""5s""#),
            example: r#""5s""#,
            help: "How long WebSockets, other tunnels and event streams may go on after SIGTERM",
            more: "They have no end of their own, and clients open them again. Never longer than `drain_timeout`.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.timeouts.drain_streams,
                v.duration(&(Duration::ZERO..=*WAIT.end())),
            );
        },
    },
];

fn set_trusted_proxies(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    config.trusted_proxies = value.each(mistakes, |item| item.parse(Cidr::from_str));
    for (item, block) in value.items().iter().zip(&config.trusted_proxies) {
        if block.is_everyone() {
            let what =
                "everyone is a trusted proxy: any client can say who it is and what it asked for";
            mistakes.warn(
                Mistake::new(&item.place, what).remedy("name the addresses of your own proxies"),
            );
        }
    }
}

fn set_proxy_protocol(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    config.proxy_protocol = value.each(mistakes, |item| item.parse(Cidr::from_str));
    for (item, block) in value.items().iter().zip(&config.proxy_protocol) {
        if block.is_everyone() {
            let what = "everyone may say by the PROXY protocol who he is, a trusted proxy or whoever may purge too";
            mistakes.warn(
                Mistake::new(&item.place, what)
                    .remedy("name the addresses of your own load balancers"),
            );
        }
    }
}

fn set_purge_from(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    config.purge_from = value.each(mistakes, |item| item.parse(Cidr::from_str));
    for (item, block) in value.items().iter().zip(&config.purge_from) {
        if block.is_everyone() {
            let what = "everyone may purge: any visitor can have the application asked for every page again";
            mistakes.warn(
                Mistake::new(&item.place, what).remedy("name the addresses of your application"),
            );
        }
    }
}

fn set_listen(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    config.listen = read_addresses(value, mistakes);
}

/// Reads addresses to listen on.
pub(super) fn read_addresses(value: &Value, mistakes: &mut Mistakes) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for item in value.items() {
        let Some(address) = mistakes.ok(item.parse(parse_address)) else {
            continue;
        };
        if address.port() != 0 && addresses.contains(&address) {
            mistakes.note(Mistake::new(
                &item.place,
                format!("{address} is listed twice"),
            ));
        }
        addresses.push(address);
    }
    if value.items().is_empty() {
        mistakes.note(Mistake::new(&value.place, "no address to listen on"));
    }
    addresses
}

/// Reads an address and a port.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().unwrap_or_default();
        match port.parse::<u16>() {
            Ok(port) if text.starts_with("localhost:") => format!("write 127.0.0.1:{port}"),
            Ok(port) => format!(
                "write an IP address and a port: 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all"
            ),
            Err(_) => "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
        }
    })
}
