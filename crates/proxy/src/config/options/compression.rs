//! Options of compression, at the top for all routes or in one route.

use std::ops::RangeInclusive;

use microcache_policy::Coding;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{List, Size, Switch};
use super::super::option::{Opt, opt};
use super::super::raw::{Table, Value};
use super::route::RouteDraft;

/// The bounds of sizes; larger bodies would occupy a thread for too long.
const BODY: RangeInclusive<u64> = 1..=64 << 20;

/// Options of compression.
pub(in crate::config) const COMPRESSION: &[Opt<RouteDraft>] = &[
    opt("compress", List("CODING"), "[]")
        .example(r#"["zstd", "br", "gzip"]"#)
        .help("Compression of stored responses: `zstd`, `br`, `gzip`, preferred first")
        .more(
            "A response is compressed once, in the background, when it is requested again by a \
             client that accepts one of the codings; the client's own preference comes before \
             this order. The origin is asked for uncompressed responses. See \
             [compression](compression.md).",
        )
        .sets(set_codings),
    opt("compress_types", List("TYPE"), r#"["text/*", "application/javascript", "application/json", "application/xml", "application/*+json", "application/*+xml", "application/wasm", "application/x-javascript", "application/x-ndjson", "font/otf", "font/ttf", "image/bmp", "image/svg+xml", "image/x-icon"]"#)
        .example(r#"["text/*", "application/json"]"#)
        .help("Media types that are compressed")
        .more("A `*` matches any run of characters.")
        .sets(|r, v, m| r.route.rules.compress.types = v.each(m, |item| item.parse(media_type))),
    opt("compress_min", Size, "1KiB")
        .help("Minimum size of a body to compress")
        .more("A body smaller than a network packet does not arrive earlier for being compressed.")
        .sets(|r, v, m| m.put(&mut r.route.rules.compress.smallest, v.size(&BODY))),
    opt("compress_max", Size, "8MiB")
        .help("Maximum size of a body to compress")
        .more(
            "Bodies that are only on disk, because memory is too small for them, are never \
             compressed.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.compress.largest, v.size(&BODY))),
    opt("compress_personal", Switch, "false")
        .help("Compression of responses that may differ per visitor (BREACH risk)")
        .more(
            "This concerns responses whose key contains cookies or secret fields: `key.cookies`, \
             some of `key.headers`, `Vary`. If such a page repeats part of its URL, an attacker \
             can make the visitor's browser request it, watch the length of the responses, and \
             guess its secrets letter by letter (BREACH).",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.compress.personal, v.switch())),
    opt("dictionaries", Switch, "false")
        .help("Delta compression against the version a browser already has (RFC 9842)")
        .more(
            "In addition to `compress`, over TLS only, for clients that accept `dcz` or `dcb` \
             (Chrome, Edge). The last 8 versions of a URL are kept in memory if they have at most \
             256 KiB. Browsers keep a version as long as its `max-age` says.",
        )
        .sets(|r, v, m| m.put(&mut r.route.rules.compress.dictionaries, v.switch())),
];

fn set_codings(draft: &mut RouteDraft, value: &Value, mistakes: &mut Mistakes) {
    let mut codings: Vec<Coding> = Vec::new();
    for coding in value.each(mistakes, |item| item.choice(CODINGS)) {
        if !codings.contains(&coding) {
            codings.push(coding);
        }
    }
    draft.route.rules.compress.codings = codings;
}

const CODINGS: &[(&str, Coding)] = &[
    ("zstd", Coding::Zstd),
    ("br", Coding::Brotli),
    ("gzip", Coding::Gzip),
];

fn media_type(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((kind, rest)) if !kind.is_empty() && !rest.is_empty() && !text.contains(';') => {
            Ok(text.to_ascii_lowercase())
        }
        _ => Err("write a media type, such as \"text/html\" or \"text/*\"".to_owned()),
    }
}

/// Checks for contradictory compression options.
pub(in crate::config) fn check_compression(
    draft: &mut RouteDraft,
    table: &Table<'_>,
    mistakes: &mut Mistakes,
) {
    let rules = &mut draft.route.rules;
    if rules.compress.smallest > rules.compress.largest
        && let Some(value) = table.get("compress_min").or(table.get("compress_max"))
    {
        let what = "`compress_min` is more than `compress_max`";
        mistakes.note(Mistake::new(&value.place, what).remedy("nothing would be compressed"));
    }
    if draft.precompressed {
        // Precompressed files usually have a higher compression level.
        rules.compress.codings.clear();
        if let Some(value) = table.get("compress") {
            let what = "`compress` and `precompressed` exclude each other";
            mistakes.note(
                Mistake::new(&value.place, what)
                    .remedy("keep `precompressed` if the files are there"),
            );
        }
    }
    if let Some(value) = table.get("dictionaries")
        && rules.compress.dictionaries
        && !rules.compress.is_on()
    {
        let what = "`dictionaries` has no effect without `compress`";
        let remedy =
            "add compress = [\"zstd\", \"br\", \"gzip\"], for browsers without a version yet";
        mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
    }
    if let Some(value) = table.get("compress")
        && rules.compress.is_on()
        && !rules.compress.personal
        && !rules.key.cookies.is_empty()
    {
        let what = "nothing is compressed where cookies are part of the key";
        mistakes.warn(Mistake::new(&value.place, what).remedy(
            "its pages may contain secrets of a visitor; if they do not, set compress_personal = true",
        ));
    }
}
