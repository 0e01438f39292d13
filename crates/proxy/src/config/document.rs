//! The sample file and the reference, printed from the tables of options.

use std::fmt::Write;

use super::option::{About, Form, Unset};
use super::options::{
    ACCESS, ACME, ADMIN, ANSWERS, ASKING, BASIC_AUTH, CERTIFICATE, COMPRESSION, EDGE, ERROR_PAGES,
    FILES, FORWARD_AUTH, GROUP, HEADERS, HEALTH_CHECK, HOLE, INCLUDE, KEY, LIMITS, LOGS, MATCH,
    MERCURE, ORIGIN, PAGES, PUSH, QUERY, REDIRECT, REDIRECTS, REQUEST_HEADERS, RESPOND,
    RESPONSE_HEADERS, REWRITE, REWRITING, ROUTE, RULES, SERVER, SERVER_ENTRY, SERVERS, TIERS, TLS,
    TOKEN, USER_CONTEXT, abouts,
};

const WIDTH: usize = 96;

/// Returns a commented file with every option. Lines that begin with `#` and no space are settings: remove the
/// `#` to enable them.
pub fn sample() -> String {
    let mut out = String::new();
    prose(
        &mut out,
        "Microcache. Everything but `origin` is optional; commented settings are the default or an example. \
         Flags have the same names: max_concurrent is --max-concurrent. A flag overrides this file. \
         `microcache check FILE` reports mistakes.",
    );
    out.push('\n');
    for about in abouts(ORIGIN) {
        explain(&mut out, &about);
        let _ = writeln!(out, "{} = {}\n", about.name, about.example_in_file());
    }
    settings(&mut out, &abouts(INCLUDE));
    section(&mut out, "Server", "");
    settings(&mut out, &abouts(SERVER));
    section(&mut out, "Client connections", "Limits and timeouts.");
    settings(&mut out, &abouts(LIMITS));
    section(&mut out, "TLS", "Certificates and HTTPS addresses.");
    settings(&mut out, &abouts(TLS));
    section(
        &mut out,
        "Certificates (ACME)",
        "Obtained and renewed automatically.",
    );
    settings(&mut out, &abouts(ACME));
    section(
        &mut out,
        "Admin interface",
        "Dashboard, purges, statistics and metrics, on an address of its own.",
    );
    settings(&mut out, &abouts(ADMIN));
    section(
        &mut out,
        "Logs and traces",
        "Requests never wait for a log.",
    );
    settings(&mut out, &abouts(LOGS));
    section(
        &mut out,
        "Disk, memcached and Redis",
        "Tiers below memory. Each is enabled by its first option.",
    );
    settings(&mut out, &abouts(TIERS));
    section(
        &mut out,
        "Push and the Mercure hub",
        "Documents and updates published here and delivered to subscribers. Each is enabled by its first option.",
    );
    settings(&mut out, &abouts(PUSH));
    settings(&mut out, &abouts(MERCURE));
    rules(&mut out);
    out
}

/// Appends what all routes and groups inherit, the groups and the routes.
fn rules(out: &mut String) {
    section(out, "Caching", "For all routes; a route may override it.");
    settings(out, &abouts(RULES));
    section(
        out,
        "Request limits",
        "For all routes; a route may override it.",
    );
    settings(out, &abouts(ASKING));
    section(out, "Access", "For all routes; a route may override it.");
    // It excludes another option, so it stands at a route below.
    let is_for_route = |about: &About| about.name == "forward_auth";
    let (access, of_route): (Vec<_>, Vec<_>) =
        abouts(ACCESS).into_iter().partition(|it| !is_for_route(it));
    settings(out, &access);
    section(
        out,
        "Compression",
        "For all routes; a route may override it.",
    );
    settings(out, &abouts(COMPRESSION));
    section(
        out,
        "Edge side includes",
        "For all routes; a route may override it.",
    );
    settings(out, &abouts(EDGE));
    section(
        out,
        "Holes and tokens",
        "For all routes; a route may override it.",
    );
    settings(out, &abouts(PAGES));
    section(
        out,
        "Header fields, redirects and error pages",
        "For all routes; a route may override it.",
    );
    settings(out, &abouts(HEADERS));
    settings(out, &abouts(REDIRECTS));
    settings(out, &abouts(ERROR_PAGES));
    section(
        out,
        "Origin (backend)",
        "For all upstream groups; a group may override it.",
    );
    settings(out, &abouts(GROUP));
    section(
        out,
        "Several applications",
        "Each group has a name, its servers, and any of the upstream options above.",
    );
    out.push_str("#[upstreams.app]\n");
    settings(out, &abouts(SERVERS));
    section(
        out,
        "Routes",
        "The first that matches wins. Each may have any of the options under Caching, Request limits, Compression and \
         Header fields. All other requests go to `origin`, under the options at the top.",
    );
    out.push_str("#[[routes]]\n");
    settings(out, &abouts(ROUTE));
    settings(out, &of_route);
    out.push_str("#ttl = \"10s\"\n\n#[[routes]]\n#match = { path = \"/static/*\" }\n");
    settings(out, &abouts(FILES));
    out.push_str("\n#[[routes]]\n#match = { path = \"/admin/*\" }\n#pass = true\n");
    let answers = abouts(ANSWERS);
    out.push_str("\n#[[routes]]\n#match = { path = \"/old/*\" }\n");
    settings(out, &answers[..1]);
    out.push_str("\n#[[routes]]\n#match = { path = \"/gone/*\" }\n");
    settings(out, &answers[1..]);
    out.push_str("\n#[[routes]]\n#match = { path = \"/api/*\" }\n#upstream = \"app\"\n");
    settings(out, &abouts(REWRITING)[..2]);
}

/// Returns the reference, in Markdown.
pub fn reference() -> String {
    let mut out = String::from(HEAD);
    of_the_server(&mut out);
    of_responses(&mut out);
    of_headers(&mut out);
    of_upstreams_and_routes(&mut out);
    out
}

fn of_the_server(out: &mut String) {
    chapter(
        out,
        "Origin",
        "At the top of the file.",
        &abouts(ORIGIN),
        "",
    );
    chapter(
        out,
        "Included files",
        "At the top of the file.",
        &abouts(INCLUDE),
        "",
    );
    chapter(
        out,
        "Server",
        "At the top of the file, and flags.",
        &abouts(SERVER),
        "",
    );
    chapter(
        out,
        "Client connections",
        "At the top of the file, and flags. Limits and timeouts of client connections (keep-alive, read, write). \
         [Operations](operations.md#limits-and-queues) describes the effect of each.",
        &abouts(LIMITS),
        "",
    );
    chapter(
        out,
        "TLS",
        "At the top of the file, and flags. Certificates and HTTPS, see [tls](tls.md).",
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
        "Certificates (ACME)",
        "At the top of the file, and flags. Certificates obtained and renewed automatically, see [acme](acme.md).",
        &abouts(ACME),
        "",
    );
    chapter(
        out,
        "Admin interface",
        "At the top of the file, and flags. Dashboard, purges, statistics and metrics, see [api](api.md).",
        &abouts(ADMIN),
        "",
    );
    chapter(
        out,
        "Logs and traces",
        "At the top of the file, and flags. See [logs](logs.md).",
        &abouts(LOGS),
        "",
    );
    chapter(
        out,
        "Disk, memcached and Redis",
        "At the top of the file, and flags. Tiers below memory, see [tiers](tiers.md).",
        &abouts(TIERS),
        "",
    );
    chapter(
        out,
        "Push",
        "At the top of the file, and flags. Documents published here and delivered to subscribers, see [push](push.md).",
        &abouts(PUSH),
        "",
    );
    chapter(
        out,
        "Mercure hub",
        "At the top of the file, and flags. See [mercure](mercure.md).",
        &abouts(MERCURE),
        "",
    );
}

fn of_responses(out: &mut String) {
    chapter(
        out,
        "Caching",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. An option of a route replaces \
         the one at the top. See [caching rules](caching-rules.md).",
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
        "Edge side includes",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. See [edge side includes](edge.md).",
        &abouts(EDGE),
        "",
    );
    chapter(
        out,
        "`key`",
        "The cache key in addition to host and path.",
        &abouts(KEY),
        "key.",
    );
    chapter(
        out,
        "`key.query`",
        "The query parameters in the cache key.",
        &abouts(QUERY),
        "key.query.",
    );
    chapter(
        out,
        "Request limits",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one.",
        &abouts(ASKING),
        "",
    );
    chapter(
        out,
        "Access",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. [Access](access.md) describes the order.",
        &abouts(ACCESS),
        "",
    );
    chapter(
        out,
        "Basic authentication",
        "In `basic_auth`.",
        &abouts(BASIC_AUTH),
        "basic_auth.",
    );
    chapter(
        out,
        "Authentication by another server",
        "In `forward_auth`.",
        &abouts(FORWARD_AUTH),
        "forward_auth.",
    );
    chapter(
        out,
        "User context",
        "In `user_context`.",
        &abouts(USER_CONTEXT),
        "user_context.",
    );
}

fn of_headers(out: &mut String) {
    chapter(
        out,
        "Holes and tokens",
        "At the top of the file, for all routes; in `[[routes]]`, for one. See [edge side includes](edge.md).",
        &abouts(PAGES),
        "",
    );
    chapter(
        out,
        "One of `holes`",
        "An element whose content is a fragment.",
        &abouts(HOLE),
        "holes.",
    );
    chapter(
        out,
        "One of `tokens`",
        "A token of one visitor.",
        &abouts(TOKEN),
        "tokens.",
    );
    chapter(
        out,
        "Header fields",
        "At the top of the file, for all routes; in `[[routes]]`, for one. See [header fields](headers.md).",
        &abouts(HEADERS),
        "",
    );
    chapter(
        out,
        "`response_headers`",
        "Changes of the fields of responses.",
        &abouts(RESPONSE_HEADERS),
        "response_headers.",
    );
    chapter(
        out,
        "`request_headers`",
        "Changes of the fields of requests to the origin.",
        &abouts(REQUEST_HEADERS),
        "request_headers.",
    );
    chapter(
        out,
        "Lists of redirects",
        "At the top of the file and flags, for all routes; in `[[routes]]`, for one. See [routing](routing.md#lists-of-redirects).",
        &abouts(REDIRECTS),
        "",
    );
    chapter(
        out,
        "Error pages",
        "At the top of the file, for all routes; in `[[routes]]`, for one. See [routing](routing.md#error-pages).",
        &abouts(ERROR_PAGES),
        "",
    );
}

fn of_upstreams_and_routes(out: &mut String) {
    chapter(
        out,
        "Origin (backend)",
        "At the top of the file and flags, for all groups; in `[upstreams.NAME]`, for one.",
        &abouts(GROUP),
        "",
    );
    chapter(
        out,
        "`health_check`",
        "Active health checks.",
        &abouts(HEALTH_CHECK),
        "health_check.",
    );
    chapter(
        out,
        "`[upstreams.NAME]`",
        "A named upstream group: its servers, and any of the options under *Origin (backend)*.",
        &abouts(SERVERS),
        "upstreams.NAME.",
    );
    chapter(
        out,
        "One of `servers`",
        "A server is a URL, or a table.",
        &abouts(SERVER_ENTRY),
        "servers.",
    );
    chapter(out, "`[[routes]]`", ROUTES, &abouts(ROUTE), "routes.");
    chapter(
        out,
        "`[[routes]]` with a directory",
        "A route may serve a directory instead of an upstream group, or before one, as in `root = \"/var/www/site\"`.",
        &abouts(FILES),
        "routes.",
    );
    chapter(
        out,
        "`[[routes]]` that answers itself",
        "A route may answer itself, without an upstream group. See [routing](routing.md).",
        &abouts(ANSWERS),
        "routes.",
    );
    chapter(
        out,
        "`redirect`",
        "The redirect of a route.",
        &abouts(REDIRECT),
        "redirect.",
    );
    chapter(
        out,
        "`respond`",
        "The response of a route.",
        &abouts(RESPOND),
        "respond.",
    );
    chapter(
        out,
        "`[[routes]]` with another path",
        "A route may ask its upstream group, or its directory, for another path than the client's. See [routing](routing.md#rewrite).",
        &abouts(REWRITING),
        "routes.",
    );
    chapter(
        out,
        "`rewrite`",
        "The path for the origin.",
        &abouts(REWRITE),
        "rewrite.",
    );
    chapter(
        out,
        "`match`",
        "The conditions of a route.",
        &abouts(MATCH),
        "match.",
    );
}

const HEAD: &str = "\
# Configuration

`microcache http://localhost:3000` needs no file. `microcache --config microcache.toml` reads one, in
[TOML](https://toml.io). Every option at the top of the file that has a simple value is a flag as well:
`max_concurrent = 32` and `--max-concurrent 32` are equal, and the flag overrides the file.

- `microcache check FILE` reports every mistake in a file at once.
- `microcache config --sample` prints a file with all options, commented.
- `microcache config --reference` prints this page.

Durations are a number and a unit: `500ms`, `1s`, `10m`, `2h`, `1d`. Sizes are `512B`, `64KiB`, `64MiB`, `1GiB` or, in
powers of ten, `KB`, `MB`, `GB`. Both are quoted in the file. A list of one value may be written as that value;
a flag for a list takes several values with commas between them, and may be repeated.

Strings may contain variables of the environment that the server is started with: `\"http://${APP_HOST}:${APP_PORT:-3000}\"`.
`${NAME:-VALUE}` stands for `VALUE` if the variable is not set or empty; without a default, an unset variable is a mistake. A value is
only text: it cannot add options. `$${` stands for the characters `${`. Messages name the variable and not its value, and so does
`GET /v1/config` if the value contains a user or a password.
";

const ROUTES: &str = "\
The first route that matches wins. A route may have the options below and any of those under *Caching*,
*Request limits*, *Compression* and *Header fields*. All other requests go to `origin`, or to the only group there is, under the options at the top.

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
            marked_default(about),
            about.name,
            about.example_in_file()
        );
    }
}

/// Returns the default as Markdown.
fn marked_default(about: &About) -> String {
    match about.unset {
        Unset::Is(_) => format!("`{}`", about.default_in_file()),
        Unset::Says(words) => words.to_owned(),
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
        let _ = writeln!(out, "#{} = {}\n", about.name, about.example_in_file());
    }
}

fn explain(out: &mut String, about: &About) {
    let mut text = format!("{}.", about.help);
    if !about.more.is_empty() {
        text = format!("{text} {}", about.more);
    }
    if about.default_in_file() != about.example_in_file() {
        text = format!("{text} Default: {}.", about.default_in_file());
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
