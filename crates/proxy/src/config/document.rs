//! The sample file and the reference, printed from the tables of options.

use std::fmt::Write;

use super::option::{About, Form};
use super::options::{
    ACME, ADMIN, ASKING, CERTIFICATE, COMPRESSION, FILES, GROUP, HEALTH_CHECK, KEY, LIMITS, LOGS,
    MATCH, MERCURE, ORIGIN, PUSH, QUERY, ROUTE, RULES, SERVER, SERVER_ENTRY, SERVERS, TIERS, TLS,
    abouts,
};

const WIDTH: usize = 96;

/// A commented file with every option. Lines that begin with `#` and no space are settings: take
/// the `#` away and they hold.
pub fn sample() -> String {
    let mut out = String::new();
    prose(
        &mut out,
        "Microcache. Everything but `origin` is optional; what stands behind # is the default or an example. \
         Flags have the same names: max_concurrent is --max-concurrent. A flag overrides this file. \
         `microcache check FILE` says whether all is well.",
    );
    out.push('\n');
    for about in abouts(ORIGIN) {
        explain(&mut out, &about);
        let _ = writeln!(out, "{} = {}\n", about.name, about.example);
    }
    section(&mut out, "The server", "");
    settings(&mut out, &abouts(SERVER));
    section(
        &mut out,
        "Limits for clients",
        "What they may take, and how long they are waited for.",
    );
    settings(&mut out, &abouts(LIMITS));
    section(
        &mut out,
        "TLS",
        "Certificates, and where clients connect by TLS.",
    );
    settings(&mut out, &abouts(TLS));
    section(
        &mut out,
        "Certificates from an authority",
        "Got and renewed by themselves (ACME).",
    );
    settings(&mut out, &abouts(ACME));
    section(
        &mut out,
        "Operators",
        "Purges, statistics and metrics, on an address of their own.",
    );
    settings(&mut out, &abouts(ADMIN));
    section(
        &mut out,
        "Logs",
        "What is written down. Nobody waits for a log.",
    );
    settings(&mut out, &abouts(LOGS));
    section(
        &mut out,
        "Tiers behind memory",
        "Where responses are kept beside memory. Each is switched on by its first line.",
    );
    settings(&mut out, &abouts(TIERS));
    section(
        &mut out,
        "Documents, and the Mercure hub",
        "What is put or published here, and told to those who watch it. Each is switched on by its first line.",
    );
    settings(&mut out, &abouts(PUSH));
    settings(&mut out, &abouts(MERCURE));
    section(
        &mut out,
        "How responses are kept",
        "For all routes; a route may say otherwise.",
    );
    settings(&mut out, &abouts(RULES));
    section(
        &mut out,
        "Limits for requests",
        "For all routes; a route may say otherwise.",
    );
    settings(&mut out, &abouts(ASKING));
    section(
        &mut out,
        "Compression",
        "For all routes; a route may say otherwise.",
    );
    settings(&mut out, &abouts(COMPRESSION));
    section(
        &mut out,
        "Upstream groups",
        "For all groups; a group may say otherwise.",
    );
    settings(&mut out, &abouts(GROUP));
    section(
        &mut out,
        "More than one application",
        "Each group has a name, its servers, and any of the upstream options above.",
    );
    out.push_str("#[upstreams.app]\n");
    settings(&mut out, &abouts(SERVERS));
    section(
        &mut out,
        "Routes",
        "The first that matches wins. Each takes any of the options above that say how responses are kept. \
         What no route takes goes to `origin`, under the rules at the top.",
    );
    out.push_str("#[[routes]]\n");
    settings(&mut out, &abouts(ROUTE));
    out.push_str("#ttl = \"10s\"\n\n#[[routes]]\n#match = { path = \"/static/*\" }\n");
    settings(&mut out, &abouts(FILES));
    out.push_str("\n#[[routes]]\n#match = { path = \"/admin/*\" }\n#pass = true\n");
    out
}

/// The reference, in Markdown.
pub fn reference() -> String {
    let mut out = String::from(HEAD);
    of_the_server(&mut out);
    of_responses(&mut out);
    of_upstreams_and_routes(&mut out);
    out
}

fn of_the_server(out: &mut String) {
    chapter(
        out,
        "The origin",
        "At the top of the file.",
        &abouts(ORIGIN),
        "",
    );
    chapter(
        out,
        "The server",
        "At the top of the file, and flags.",
        &abouts(SERVER),
        "",
    );
    chapter(
        out,
        "Limits for clients",
        "At the top of the file, and flags. What clients may take, and how long they are waited for. What happens at each bound stands in \
         [operations](operations.md#what-happens-at-each-bound).",
        &abouts(LIMITS),
        "",
    );
    chapter(
        out,
        "TLS",
        "At the top of the file, and flags. Certificates, and where clients connect by TLS, see [tls](tls.md).",
        &abouts(TLS),
        "",
    );
    chapter(
        out,
        "One of `tls`",
        "A certificate is `\"CERTIFICATE,KEY\"`, or a table.",
        &abouts(CERTIFICATE),
        "tls.",
    );
    chapter(
        out,
        "Certificates from an authority",
        "At the top of the file, and flags. They are got and renewed by themselves, see [acme](acme.md).",
        &abouts(ACME),
        "",
    );
    chapter(
        out,
        "Operators",
        "At the top of the file, and flags. Purges, statistics and metrics, see [api](api.md).",
        &abouts(ADMIN),
        "",
    );
    chapter(
        out,
        "Logs",
        "At the top of the file, and flags. What is written down, see [logs](logs.md).",
        &abouts(LOGS),
        "",
    );
    chapter(
        out,
        "Tiers behind memory",
        "At the top of the file, and flags. Where responses are kept beside memory.",
        &abouts(TIERS),
        "",
    );
    chapter(
        out,
        "Documents",
        "At the top of the file, and flags. What is put here, and told to those who watch it, see [push](push.md).",
        &abouts(PUSH),
        "",
    );
    chapter(
        out,
        "Mercure",
        "At the top of the file, and flags. Who publishes and subscribes by the Mercure protocol, see [mercure](mercure.md).",
        &abouts(MERCURE),
        "",
    );
}

fn of_responses(out: &mut String) {
    chapter(
        out,
        "How responses are kept",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. What a route says replaces \
         what the top says.",
        &abouts(RULES),
        "",
    );
    chapter(
        out,
        "Compression",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. See [compression](compression.md).",
        &abouts(COMPRESSION),
        "",
    );
    chapter(
        out,
        "`key`",
        "What tells responses apart.",
        &abouts(KEY),
        "key.",
    );
    chapter(
        out,
        "`key.query`",
        "Which query parameters count.",
        &abouts(QUERY),
        "key.query.",
    );
    chapter(
        out,
        "Limits for requests",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one.",
        &abouts(ASKING),
        "",
    );
}

fn of_upstreams_and_routes(out: &mut String) {
    chapter(
        out,
        "Upstream groups",
        "At the top of the file and flags, for all groups; in `[upstreams.NAME]`, for one.",
        &abouts(GROUP),
        "",
    );
    chapter(
        out,
        "`health_check`",
        "How servers are asked whether they are well.",
        &abouts(HEALTH_CHECK),
        "health_check.",
    );
    chapter(
        out,
        "`[upstreams.NAME]`",
        "A named group takes its servers and any of the upstream options.",
        &abouts(SERVERS),
        "upstreams.NAME.",
    );
    chapter(
        out,
        "One of `servers`",
        "A server is a url, or a table.",
        &abouts(SERVER_ENTRY),
        "servers.",
    );
    chapter(out, "`[[routes]]`", ROUTES, &abouts(ROUTE), "routes.");
    chapter(
        out,
        "`[[routes]]` with a directory",
        "A route may answer from a directory instead of an upstream group, as in `root = \"/var/www/site\"`.",
        &abouts(FILES),
        "routes.",
    );
    chapter(
        out,
        "`match`",
        "Which requests a route takes.",
        &abouts(MATCH),
        "match.",
    );
}

const HEAD: &str = "\
# Configuration

`microcache http://localhost:3000` needs no file. `microcache --config microcache.toml` reads one, in
[TOML](https://toml.io). Every option at the top of the file that has a simple value is a flag as well:
`max_concurrent = 32` and `--max-concurrent 32` say the same, and the flag overrides the file.

- `microcache check FILE` reports every mistake in a file at once.
- `microcache config --sample` prints a file with all options, commented.
- `microcache config --reference` prints this page.

Durations are a number and a unit: `500ms`, `1s`, `10m`, `2h`, `1d`. Sizes are `512B`, `64KiB`, `64MiB`, `1GiB` or, in
powers of ten, `KB`, `MB`, `GB`. Both stand in quotes in the file. Where a list is taken, one value may stand alone;
a flag takes several with commas between them, and may be repeated.
";

const ROUTES: &str = "\
The first route that matches wins. A route takes the options below and any of those under *How responses are kept*,
*Limits for requests* and *Compression*. What no route takes goes to `origin`, or to the only group there is, under the rules at the top.

```toml
[[routes]]
match = { path = \"/admin/*\" }
pass = true

[[routes]]
match = { host = \"blog.example.com\", method = \"GET\" }
ttl = \"10s\"
key = { query = { ignore = [\"utm_*\"] } }
```";

fn chapter(out: &mut String, title: &str, intro: &str, abouts: &[About], path: &str) {
    let _ = write!(out, "\n## {title}\n\n{intro}\n");
    for about in abouts {
        let _ = write!(out, "\n### `{path}{}`\n\n{}.", about.name, about.help);
        if !about.more.is_empty() {
            let _ = write!(out, " {}", about.more);
        }
        let _ = write!(
            out,
            "\n\n- {}; default: {}\n- example: `{} = {}`\n",
            form(about.form),
            about.unset.marked(),
            about.name,
            about.example
        );
    }
}

fn form(form: Form) -> String {
    match form {
        Form::Duration => "a duration".to_owned(),
        Form::Size => "a size".to_owned(),
        Form::Number => "a number".to_owned(),
        Form::Switch => "`true` or `false`".to_owned(),
        Form::Text(name) => format!("text: {name}"),
        Form::List(name) => format!("one or a list: {name}"),
        Form::Table(what) => format!("a table: {what}"),
    }
}

fn section(out: &mut String, title: &str, intro: &str) {
    let _ = writeln!(out, "# --- {title} {}", "-".repeat(WIDTH - title.len() - 7));
    if !intro.is_empty() {
        prose(out, intro);
    }
    out.push('\n');
}

fn settings(out: &mut String, abouts: &[About]) {
    for about in abouts {
        explain(out, about);
        let _ = writeln!(out, "#{} = {}\n", about.name, about.example);
    }
}

fn explain(out: &mut String, about: &About) {
    let mut text = format!("{}.", about.help);
    if !about.more.is_empty() {
        text = format!("{text} {}", about.more);
    }
    if about.unset.words() != about.example {
        text = format!("{text} Default: {}.", about.unset.words());
    }
    prose(out, &text);
}

/// Writes a comment, in lines of bounded length.
fn prose(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}
