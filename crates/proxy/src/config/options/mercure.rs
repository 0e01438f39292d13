//! Options of the Mercure hub.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::super::mercure::MercureConfig;
use super::super::option::{About, Form, Opt, Unset};

const HISTORY: RangeInclusive<u64> = 1 << 16..=1 << 40;

/// Options of the Mercure hub.
pub(in crate::config) const MERCURE: &[Opt<MercureConfig>] = &[
    Opt {
        about: About {
            name: "mercure_publisher_key_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("no hub"),
            example: r#""/etc/microcache/mercure-key""#,
            help: "Be a Mercure hub at `/.well-known/mercure`: the file has the key that tokens of publishers are signed with",
            more: "A secret of 32 bytes at least (HS256, HS384, HS512), or a public key as PEM (RSA, P-256, P-384 or Ed25519). It is read again \
                   by a reload. [docs/mercure.md](mercure.md) says how updates are published and subscribed to.",
        },
        set: |mercure, v, m| {
            if let Some(path) = m.ok(v.text()) {
                mercure.publisher_key_file = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "mercure_subscriber_key_file",
            form: Form::Text("FILE"),
            unset: Unset::Says("that of publishers"),
            example: r#""/etc/microcache/mercure-subscriber-key""#,
            help: "The file with the key that tokens of subscribers are signed with",
            more: "",
        },
        set: |mercure, v, m| {
            if let Some(path) = m.ok(v.text()) {
                mercure.subscriber_key_file = Some((PathBuf::from(path), v.place.clone()));
            }
        },
    },
    Opt {
        about: About {
            name: "mercure_audience",
            form: Form::Text("TEXT"),
            unset: Unset::Says("whom tokens are for is not looked at"),
            example: r#""https://www.example.com/.well-known/mercure""#,
            help: "Take only tokens that are for this hub: their `aud` has this",
            more: "Needed where whoever signs tokens with the same key does so for other services too.",
        },
        set: |mercure, v, m| {
            if let Some(audience) = m.ok(v.text()) {
                mercure.audience = Some(audience.to_owned());
            }
        },
    },
    Opt {
        about: About {
            name: "mercure_anonymous",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Let those subscribe who have no token, to updates that are not private",
            more: "",
        },
        set: |mercure, v, m| m.put(&mut mercure.anonymous, v.switch()),
    },
    Opt {
        about: About {
            name: "mercure_subscriptions",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "true",
            help: "Tell who subscribes: by events, and at `/.well-known/mercure/subscriptions`",
            more: "Only those are told whose token lets them subscribe to such a url. [docs/mercure.md](mercure.md) says more.",
        },
        set: |mercure, v, m| m.put(&mut mercure.subscriptions, v.switch()),
    },
    Opt {
        about: About {
            name: "mercure_history",
            form: Form::Size,
            unset: Unset::Is(r#""16MiB""#),
            example: r#""64MiB""#,
            help: "What updates may take that are remembered for subscribers who come back, and for slow ones",
            more: "The oldest go first. A subscriber who is so slow that what comes next is not remembered any more is let go, and comes back.",
        },
        set: |mercure, v, m| m.put(&mut mercure.history, v.size(&HISTORY)),
    },
];
