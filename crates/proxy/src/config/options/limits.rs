//! Bounds on what clients may take, and on how long they are waited for.

use std::ops::RangeInclusive;

use super::super::Config;
use super::super::option::{About, Form, Opt, Unset};
use super::WAIT;

const HEAD: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// Bounds on what clients may take, and on how long they are waited for.
pub(in crate::config) const LIMITS: &[Opt<Config>] = &[
    Opt {
        about: About {
            name: "max_connections",
            form: Form::Number,
            unset: Unset::Says("what file descriptors allow"),
            example: "20000",
            help: "The most client connections at a time",
            more: "When there are so many, or no descriptors are left, connections that wait for a request are closed: \
                   of the address with the most connections, those that have waited longest.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.limits.max_connections,
                v.count(1..=10_000_000).map(Some),
            );
        },
    },
    Opt {
        about: About {
            name: "max_connections_per_address",
            form: Form::Number,
            unset: Unset::Says("nine tenths of `max_connections`, and 1024 at least"),
            example: "200",
            help: "The most connections of one client address at a time",
            more: "In IPv6, of one /64. For one that has as many, those of its own that wait for a request are closed; without any, \
                   it is refused. Behind one address there may be many visitors: a company, a mobile network. Those in \
                   `trusted_proxies` may have all.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.limits.max_connections_per_address,
                v.count(1..=10_000_000).map(Some),
            );
        },
    },
    Opt {
        about: About {
            name: "max_requests_per_connection",
            form: Form::Number,
            unset: Unset::Says("any number"),
            example: "10000",
            help: "The most requests on one connection",
            more: "With the answer to the last the client is told to open another one; no request is lost. So clients spread \
                   anew over several servers behind one address.",
        },
        set: |c, v, m| {
            let count = v.count(1..=1_000_000_000).map(|count| Some(count as u64));
            m.put(&mut c.limits.requests_per_connection, count);
        },
    },
    Opt {
        about: About {
            name: "max_tunnels",
            form: Form::Number,
            unset: Unset::Says("a quarter of what file descriptors allow"),
            example: "5000",
            help: "The most WebSockets, other tunnels and event streams at a time",
            more: "Each takes a second file descriptor for as long as it lives, but for those who subscribe to documents. The next one is answered 503.",
        },
        set: |c, v, m| {
            m.put(&mut c.limits.max_tunnels, v.count(0..=10_000_000).map(Some));
        },
    },
    Opt {
        about: About {
            name: "max_head_size",
            form: Form::Size,
            unset: Unset::Is(r#""32KiB""#),
            example: r#""32KiB""#,
            help: "The longest request head; a longer one is answered 431",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.limits.head_bytes, v.size(&HEAD).map(|n| n as usize)),
    },
    Opt {
        about: About {
            name: "max_target_size",
            form: Form::Size,
            unset: Unset::Is(r#""8KiB""#),
            example: r#""8KiB""#,
            help: "The longest url; a longer one is answered 414",
            more: "It cannot be longer than the head it is part of.",
        },
        set: |c, v, m| {
            m.put(
                &mut c.limits.target_bytes,
                v.size(&HEAD).map(|n| n as usize),
            );
        },
    },
    Opt {
        about: About {
            name: "max_fields",
            form: Form::Number,
            unset: Unset::Is("100"),
            example: "100",
            help: "The most fields in a request head; more are answered 431",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.limits.fields, v.count(10..=10_000)),
    },
    Opt {
        about: About {
            name: "max_rate_keys",
            form: Form::Number,
            unset: Unset::Is("65536"),
            example: "65536",
            help: "How many clients, or whatever else `rate` counts by, are remembered",
            more: "Each takes 17 bytes, where some route has a `rate`. Where there are more, those are forgotten first who have asked least.",
        },
        set: |c, v, m| m.put(&mut c.limits.max_rate_keys, v.count(64..=100_000_000)),
    },
    Opt {
        about: About {
            name: "http2_max_streams",
            form: Form::Number,
            unset: Unset::Is("128"),
            example: "128",
            help: "The most requests that a connection may have open at a time by HTTP/2",
            more: "The next one is refused, and the client may send it again.",
        },
        set: |c, v, m| m.put(&mut c.limits.http2.streams, v.count(1..=128)),
    },
    Opt {
        about: About {
            name: "http2_max_resets",
            form: Form::Number,
            unset: Unset::Is("200"),
            example: "200",
            help: "How many requests of a connection may be given up before they are answered by HTTP/2",
            more: "So many at once, and a tenth of it again in each second. A client that exceeds it is sent away (CVE-2023-44487). \
                   The other bounds of this kind have no option, see [operations](operations.md#http2).",
        },
        set: |c, v, m| m.put(&mut c.limits.http2.resets, v.count(10..=1_000_000)),
    },
    Opt {
        about: About {
            name: "client_head_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""10s""#),
            example: r#""10s""#,
            help: "How long a client may take to send a request head",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.timeouts.head, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "client_idle_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""75s""#),
            example: r#""75s""#,
            help: "How long a connection may be silent between two requests",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.timeouts.idle, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "client_body_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How long a client may be silent within a request body",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.timeouts.body, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "client_body_rate",
            form: Form::Size,
            unset: Unset::Is(r#""1KiB""#),
            example: r#""1KiB""#,
            help: "The least that a client must send of a request body per second",
            more: "On average: `client_body_timeout` is how far it may fall behind. Waiting for the origin does not count. \
                   `\"0B\"` lets a client send a byte now and then for as long as it likes.",
        },
        set: |c, v, m| m.put(&mut c.timeouts.body_rate, v.size(&(0..=1 << 30))),
    },
    Opt {
        about: About {
            name: "client_write_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How long a client may refuse to take more of a response",
            more: "",
        },
        set: |c, v, m| m.put(&mut c.timeouts.write, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "client_half_closed_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""30s""#),
            example: r#""30s""#,
            help: "How long a client that has closed its sending side waits for more of its answer",
            more: "Such a client may be gone altogether, which is not seen before something is sent to it. \
                   The same goes for a tunnel of which one side has ended. An event stream ends at once.",
        },
        set: |c, v, m| m.put(&mut c.timeouts.half_closed, v.duration(&WAIT)),
    },
    Opt {
        about: About {
            name: "tunnel_timeout",
            form: Form::Duration,
            unset: Unset::Is(r#""1h""#),
            example: r#""1h""#,
            help: "How long a WebSocket or another tunnel may be silent",
            more: "In both directions at once. One that subscribes to documents or pages is asked \
                   whether it is there instead.",
        },
        set: |c, v, m| m.put(&mut c.timeouts.tunnel, v.duration(&WAIT)),
    },
];
