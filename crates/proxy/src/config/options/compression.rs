//! Options that say what is sent compressed: at the top for all routes, in a route for itself.

use std::ops::RangeInclusive;

use microcache_policy::Coding;

use super::super::mistake::{Mistake, Mistakes};
use super::super::option::{About, Form, Opt, Unset};
use super::super::raw::{Table, Value};
use super::route::RouteDraft;

/// The largest body that is worth a thread's time.
const BODY: RangeInclusive<u64> = 1..=64 << 20;

/// What is sent compressed.
pub(in crate::config) const COMPRESSION: &[Opt<RouteDraft>] = &[
    Opt {
        about: About {
            name: "compress",
            form: Form::List("CODING"),
            unset: Unset::Is("[]"),
            example: r#"["zstd", "br", "gzip"]"#,
            help: "Codings in which stored responses are sent, best first: `zstd`, `br`, `gzip`",
            more: "Each response is compressed once, in the background, when somebody asks for it again who accepts a coding; \
                   what a client prefers comes before this order. The origin is asked for what is not compressed. See compression.",
        },
        set: set_codings,
    },
    Opt {
        about: About {
            name: "compress_types",
            form: Form::List("TYPE"),
            unset: Unset::Is(
                r#"["text/*", "application/javascript", "application/json", "application/xml", "application/*+json", "application/*+xml", "application/wasm", "application/x-javascript", "application/x-ndjson", "font/otf", "font/ttf", "image/bmp", "image/svg+xml", "image/x-icon"]"#,
            ),
            example: r#"["text/*", "application/json"]"#,
            help: "Media types that are compressed",
            more: "A `*` stands for any run of characters.",
        },
        set: |r, v, m| r.route.rules.compress.types = v.each(m, |item| item.parse(media_type)),
    },
    Opt {
        about: About {
            name: "compress_min",
            form: Form::Size,
            unset: Unset::Is(r#""1KiB""#),
            example: r#""1KiB""#,
            help: "The smallest body that is compressed",
            more: "Less than a packet is not sent any sooner for being smaller.",
        },
        set: |r, v, m| m.put(&mut r.route.rules.compress.smallest, v.size(&BODY)),
    },
    Opt {
        about: About {
            name: "compress_max",
            form: Form::Size,
            unset: Unset::Is(r#""8MiB""#),
            example: r#""8MiB""#,
            help: "The largest body that is compressed",
            more: "What lies on disk because memory is too small for it is sent as it is.",
        },
        set: |r, v, m| m.put(&mut r.route.rules.compress.largest, v.size(&BODY)),
    },
    Opt {
        about: About {
            name: "compress_personal",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "false",
            help: "Compress also what may be different for each visitor",
            more: "That is what is stored by cookies or fields with secrets: `key.cookies`, some of `key.headers`, `Vary`. Where such a page \
                   repeats what is in its url, whoever makes a visitor's browser ask for it, and sees how long the answers are, can \
                   guess its secrets letter by letter (BREACH).",
        },
        set: |r, v, m| m.put(&mut r.route.rules.compress.personal, v.switch()),
    },
    Opt {
        about: About {
            name: "dictionaries",
            form: Form::Switch,
            unset: Unset::Is("false"),
            example: "false",
            help: "Send browsers what differs from the version of a page that they have (RFC 9842)",
            more: "Beside `compress`, and over TLS: to those that accept `dcz` or `dcb`, as Chrome and Edge do. The last 8 versions of a url are remembered in memory, \
                   if they have at most 256 KiB. Browsers keep a version for as long as the page says (`max-age`).",
        },
        set: |r, v, m| m.put(&mut r.route.rules.compress.dictionaries, v.switch()),
    },
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

/// What cannot be meant together.
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
        // Whoever made the files has had more time for it.
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
        let what = "`dictionaries` says nothing without `compress`";
        let remedy =
            "add compress = [\"zstd\", \"br\", \"gzip\"], for those who have no version yet";
        mistakes.note(Mistake::new(&value.place, what).remedy(remedy));
    }
    if let Some(value) = table.get("compress")
        && rules.compress.is_on()
        && !rules.compress.personal
        && !rules.key.cookies.is_empty()
    {
        let what = "nothing is compressed where cookies are part of the key";
        mistakes.warn(Mistake::new(&value.place, what).remedy(
            "its pages may hold a visitor's secrets; if they do not, say compress_personal = true",
        ));
    }
}
