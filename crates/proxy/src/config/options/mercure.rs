//! Options of the Mercure hub.

use std::ops::RangeInclusive;

use super::super::mercure::MercureConfig;
use super::super::option::Form::{Size, Switch, Text};
use super::super::option::{Opt, opt, optional};

const HISTORY: RangeInclusive<u64> = 1 << 16..=1 << 40;

/// Options of the Mercure hub.
pub(in crate::config) const MERCURE: &[Opt<MercureConfig>] = &[
    optional(
        "mercure_publisher_key_file",
        Text("FILE"),
        "/etc/microcache/mercure-key",
    )
    .unset("no hub")
    .help("Mercure hub: file with the key that signs publishers' tokens (JWT)")
    .more(
        "Enables the hub at `/.well-known/mercure`. The key is a secret of at least 32 bytes \
             (HS256, HS384, HS512) or a public key in PEM form (RSA, P-256, P-384, Ed25519). It \
             is read again on reload. See [mercure](mercure.md).",
    )
    .sets(|mercure, v, m| m.put(&mut mercure.publisher_key_file, v.file().map(Some))),
    optional(
        "mercure_subscriber_key_file",
        Text("FILE"),
        "/etc/microcache/mercure-subscriber-key",
    )
    .unset("the publishers' key")
    .help("Mercure hub: file with the key that signs subscribers' tokens (JWT)")
    .sets(|mercure, v, m| m.put(&mut mercure.subscriber_key_file, v.file().map(Some))),
    optional(
        "mercure_audience",
        Text("TEXT"),
        "https://www.example.com/.well-known/mercure",
    )
    .unset("not checked")
    .help("Mercure hub: required audience (`aud`) of tokens")
    .more("Required if the signing key is shared with other services.")
    .sets(|mercure, v, m| {
        m.put(
            &mut mercure.audience,
            v.text().map(|text| Some(text.to_owned())),
        );
    }),
    opt("mercure_anonymous", Switch, "false")
        .example("true")
        .help("Mercure hub: subscribers without a token, limited to public updates")
        .sets(|mercure, v, m| m.put(&mut mercure.anonymous, v.switch())),
    opt("mercure_subscriptions", Switch, "false")
        .example("true")
        .help("Mercure hub: subscription events and API (active subscribers)")
        .more(
            "At `/.well-known/mercure/subscriptions`. Delivered only to tokens allowed to \
             subscribe to these topics. See [mercure](mercure.md).",
        )
        .sets(|mercure, v, m| m.put(&mut mercure.subscriptions, v.switch())),
    opt("mercure_history", Size, "16MiB")
        .example("64MiB")
        .help("Mercure hub: memory for history (reconnecting and slow subscribers)")
        .more(
            "The oldest updates are evicted first. A subscriber that falls behind the history is \
             disconnected, and reconnects.",
        )
        .sets(|mercure, v, m| m.put(&mut mercure.history, v.size(&HISTORY))),
];
