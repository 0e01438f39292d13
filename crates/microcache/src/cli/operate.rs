//! The command lines of `purge`, `warm`, `stats`, `entries`, `explain`, `top`, `drain`, `reload`,
//! `upgrade` and `maintenance`.

use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use microcache_proxy::config::Admin;
use serde_json::{Map, Value, json};

use super::help::Layout;
use super::{Message, file, switch, texts, wrong};

/// A request to the admin interface of a running server.
#[derive(Debug, PartialEq)]
pub(crate) struct Operate {
    pub(crate) server: AdminAddress,
    /// The answer is printed as JSON.
    pub(crate) json: bool,
    pub(crate) errand: Errand,
}

/// The admin interface of a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminAddress {
    /// Its URL.
    pub(crate) admin: String,
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Errand {
    /// The body of the request.
    Purge(Value),
    Warm(Warm),
    Stats,
    /// The parameters of the request.
    Entries(Vec<(&'static str, String)>),
    /// The body of the request.
    Explain(Value),
    Drain,
    Reload,
    Upgrade,
    Maintenance(MaintenanceErrand),
}

/// Pages to be warmed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Warm {
    pub(crate) list: WarmList,
    /// The limit of requests, such as `5/s`.
    pub(crate) rate: Option<String>,
}

/// The source of their URLs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WarmList {
    Sitemap(String),
    File(PathBuf),
}

#[derive(Debug, PartialEq)]
pub(crate) enum MaintenanceErrand {
    /// The body of the request.
    On(Value),
    Off,
    Status,
}

pub(super) const NAMES: [&str; 9] = [
    "purge",
    "warm",
    "stats",
    "entries",
    "explain",
    "drain",
    "reload",
    "upgrade",
    "maintenance",
];

/// The command with a live view on the terminal.
pub(super) const TOP: &str = "top";

/// The admin address of a server without configuration.
const ADMIN: &str = "127.0.0.1:8081";
/// The configuration of the packaged service.
const CONFIG: &str = "/etc/microcache/microcache.toml";

/// A parameter of the interface, and its flag.
struct Parameter {
    name: &'static str,
    flag: &'static str,
    value: &'static str,
    help: &'static str,
}

const fn parameter(
    name: &'static str,
    flag: &'static str,
    value: &'static str,
    help: &'static str,
) -> Parameter {
    Parameter {
        name,
        flag,
        value,
        help,
    }
}

/// The scopes of purges and lists.
const SCOPES: [Parameter; 4] = [
    parameter(
        "prefix",
        "prefix",
        "URL",
        "All URLs that begin with this one",
    ),
    parameter(
        "glob",
        "glob",
        "URL",
        "All URLs that match; * is any run of characters",
    ),
    parameter("host", "host", "HOST", "All URLs of a host"),
    parameter(
        "tag",
        "tag",
        "TAG",
        "All responses with this tag (Cache-Tag, xkey, ...)",
    ),
];

/// The selection of variants of a URL to purge.
const OF_VARIANTS: [Parameter; 2] = [
    parameter(
        "variant",
        "variant",
        "ID",
        "Only this variant of the URL, as listed by `microcache entries URL`",
    ),
    parameter(
        "headers",
        "header",
        "'NAME: VALUE'",
        "Only the variant for requests with this header",
    ),
];

/// The filters of lists.
const FILTERS: [Parameter; 7] = [
    parameter("min_size", "min-size", "BYTES", "Minimum size [0]"),
    parameter("min_age", "min-age", "SECONDS", "Minimum age [0]"),
    parameter("min_hits", "min-hits", "N", "Minimum number of hits [0]"),
    parameter(
        "order",
        "order",
        "key|size|age|hits",
        "Order; the largest first [key]",
    ),
    parameter("tier", "tier", "memory|disk", "Tier to list [memory]"),
    parameter("limit", "limit", "N", "Maximum number of entries [100]"),
    parameter(
        "after",
        "after",
        "PLACE",
        "Continue a list: the value in the last line of the previous page",
    ),
];

/// The properties of a request to explain.
const OF_REQUEST: [Parameter; 3] = [
    parameter(
        "headers",
        "header",
        "'NAME: VALUE'",
        "Header of the request; may be repeated",
    ),
    parameter("method", "method", "METHOD", "Method of the request [GET]"),
    parameter(
        "from",
        "from",
        "ADDRESS",
        "Address of the client [127.0.0.1]",
    ),
];

pub(super) fn commands() -> [Command; 10] {
    [
        purge_command(),
        warm_command(),
        explain_command(),
        entries_command(),
        simple(
            "stats",
            "Show the statistics of a running server: hit ratio, p50/p99, memory, backends",
            "microcache stats",
        ),
        simple(
            TOP,
            "Watch a running server on the terminal: rates, latency, top URLs, errors",
            "microcache top",
        ),
        simple(
            "reload",
            "Reload the configuration file of a running server",
            "microcache reload",
        ),
        simple(
            "upgrade",
            "Replace a running server by a new process, without losing a request",
            "microcache upgrade",
        ),
        simple(
            "drain",
            "Drain a running server: finish the requests in progress, and exit",
            "microcache drain",
        ),
        maintenance_command(),
    ]
}

fn purge_command() -> Command {
    let command = Command::new("purge")
        .about("Purge entries of a running server: by URL, prefix, pattern, host or tag")
        .arg(Arg::new("URL").num_args(0..))
        .args(SCOPES.iter().chain(&OF_VARIANTS).map(repeated))
        .arg(switch("all").help("All entries"))
        .arg(switch("soft").help("Mark as stale instead: served while it is revalidated"))
        .arg(switch("refresh").help("Fetch again what was requested lately, behind all visitors"));
    finished(
        command,
        Layout {
            usage: "microcache purge [FLAGS] [URL...]",
            examples: "microcache purge https://example.org/news\n\
                       microcache purge --prefix https://example.org/blog/ --soft\n\
                       microcache purge --tag product-42\n\
                       microcache purge --all --soft --refresh",
            notes: EXIT,
        },
    )
}

fn warm_command() -> Command {
    let argument =
        |name: &'static str, value, help| Arg::new(name).long(name).value_name(value).help(help);
    let command = Command::new("warm")
        .about("Fetch pages into the cache of a running server before visitors ask for them")
        .arg(argument(
            "sitemap",
            "URL",
            "Sitemap or index, as visitors request it; 50,000 URLs at most",
        ))
        .arg(
            argument(
                "file",
                "LIST",
                "File with a URL per line, - for standard input; 8 MiB at most",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(argument(
            "rate",
            "RATE",
            "Limit of requests to the origin, as 5/s or 30/m; off: none [5/s]",
        ));
    finished(
        command,
        Layout {
            usage: "microcache warm [FLAGS] --sitemap URL|--file LIST",
            examples: "microcache warm --sitemap https://www.example.org/sitemap.xml\n\
                       microcache warm --file urls.txt --rate 20/s",
            notes: WARM_EXIT,
        },
    )
}

fn explain_command() -> Command {
    let command = Command::new("explain")
        .about("Explain why a request is a hit, a miss or uncacheable, and what to change")
        .arg(Arg::new("URL").num_args(0..=1))
        .args(OF_REQUEST.iter().map(repeated))
        .arg(switch("fetch").help("Also send the request to the origin, as for a visitor"));
    finished(
        command,
        Layout {
            usage: "microcache explain [FLAGS] URL",
            examples: "microcache explain https://example.org/news\n\
                       microcache explain https://example.org/ -H 'Cookie: session=1' --fetch",
            notes: EXPLAIN_EXIT,
        },
    )
}

fn entries_command() -> Command {
    let parameters = SCOPES.iter().chain(&FILTERS);
    let command = Command::new("entries")
        .about("List the stored entries of a running server")
        .arg(Arg::new("URL").num_args(0..=1))
        .args(parameters.map(|one| argument(one, ArgAction::Set)));
    finished(
        command,
        Layout {
            usage: "microcache entries [FLAGS] [URL]",
            examples: "microcache entries --order size --limit 20\n\
                       microcache entries --prefix https://example.org/blog/",
            notes: EXIT,
        },
    )
}

/// The properties of maintenance mode.
const OF_MAINTENANCE: [Parameter; 2] = [
    parameter(
        "allow",
        "allow",
        "ADDRESS",
        "With on: address or block that is served as usual",
    ),
    parameter(
        "retry_after",
        "retry-after",
        "SECONDS",
        "With on: Retry-After of the responses [60]",
    ),
];

fn maintenance_command() -> Command {
    let command = Command::new("maintenance")
        .about("Switch maintenance mode of a running server: clients get 503")
        .arg(Arg::new("STATE").num_args(0..=1))
        .args(OF_MAINTENANCE.iter().map(repeated))
        .arg(switch("keep-cached").help("With on: still send what needs no request to the origin"));
    finished(
        command,
        Layout {
            usage: "microcache maintenance [FLAGS] on|off|status",
            examples: "microcache maintenance on --allow 192.0.2.7\n\
                       microcache maintenance off",
            notes: EXIT,
        },
    )
}

fn simple(name: &'static str, about: &'static str, example: &str) -> Command {
    let usage = format!("microcache {name} [FLAGS]");
    finished(
        Command::new(name).about(about),
        Layout {
            usage: &usage,
            examples: &format!("{example}\n{example} --admin 127.0.0.1:9081"),
            notes: EXIT,
        },
    )
}

const EXIT: &str = "\
Exit status: 0 if it succeeded, 1 if the server cannot be reached or failed,
2 if it refused the request.";

const WARM_EXIT: &str = "\
Ctrl-C stops it. Exit status: 0 if all URLs were visited, 1 if the server cannot
be reached or gave up, 2 if it refused the request, 130 after Ctrl-C.";

const EXPLAIN_EXIT: &str = "\
Exit status: 0 if the request is or will be a hit, 3 if not, 4 if only the
origin can tell (see --fetch); 1 if the server cannot be reached or failed,
2 if it refused the request.";

/// Adds the flags that name the server, and lays out the help.
fn finished(command: Command, layout: Layout<'_>) -> Command {
    let path = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help_heading(SERVER)
    };
    let is_top = command.get_name() == TOP;
    let command = command
        .arg(path("config").help(format!(
            "Configuration file with the admin address and token [{CONFIG}]"
        )))
        .arg(
            Arg::new("admin")
                .long("admin")
                .value_name("URL")
                .help_heading(SERVER)
                .help(format!("Admin interface [{ADMIN}]")),
        )
        .arg(path("token-file").help("File with the bearer token of the admin interface"));
    let command = if is_top {
        command
    } else {
        command.arg(
            switch("json")
                .help_heading("Output")
                .help("Print the JSON of the admin interface"),
        )
    };
    layout.apply(command)
}

const SERVER: &str = "Server";

/// Returns a flag that may be repeated.
fn repeated(parameter: &Parameter) -> Arg {
    let argument = argument(parameter, ArgAction::Append);
    if parameter.name == "headers" {
        argument.short('H')
    } else {
        argument
    }
}

fn argument(parameter: &Parameter, action: ArgAction) -> Arg {
    Arg::new(parameter.name)
        .long(parameter.flag)
        .value_name(parameter.value)
        .help(parameter.help)
        .action(action)
}

pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Operate, Message> {
    let errand = match name {
        "purge" => purge(matches)?,
        "warm" => warm(matches)?,
        "entries" => Errand::Entries(parameters(matches)),
        "explain" => explain(matches)?,
        "drain" => Errand::Drain,
        "reload" => Errand::Reload,
        "upgrade" => Errand::Upgrade,
        "maintenance" => Errand::Maintenance(maintenance(matches)?),
        _ => Errand::Stats,
    };
    Ok(Operate {
        server: server(name, matches)?,
        json: matches.get_flag("json"),
        errand,
    })
}

/// Returns the server to address. The configuration is read only if no address is given: its token is for the server
/// that it configures, and for no other.
pub(super) fn server(name: &str, matches: &ArgMatches) -> Result<AdminAddress, Message> {
    let typed = texts(matches, "admin").concat();
    let (admin, secret) = if typed.is_empty() {
        configured(name, file(matches, "config").as_deref())?
    } else {
        (typed, None)
    };
    let admin = if admin.contains("://") {
        admin
    } else {
        format!("http://{admin}")
    };
    if !admin.starts_with("http://") {
        return Err(wrong(&format!(
            "{name}: --admin {admin}: the admin interface speaks http; type: --admin http://{ADMIN}"
        )));
    }
    Ok(AdminAddress {
        admin: admin.trim_end_matches('/').to_owned(),
        token_file: file(matches, "token-file").or(secret),
    })
}

/// Returns the admin address and token file of a configuration; by default that of the service, if it is readable.
fn configured(name: &str, file: Option<&Path>) -> Result<(String, Option<PathBuf>), Message> {
    let admin = match (file, Admin::of_file(file.unwrap_or(Path::new(CONFIG)))) {
        (_, Ok(admin)) => admin,
        (None, Err(_)) => Admin::default(),
        (Some(file), Err(error)) => {
            let file = file.display();
            return Err(wrong(&format!("{name}: cannot read {file}: {error}")));
        }
    };
    let secret = admin
        .token_file
        .filter(|secret| file.is_some() || File::open(secret).is_ok());
    let address = admin.address.map(|mut address| {
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        address.to_string()
    });
    Ok((address.unwrap_or_else(|| ADMIN.to_owned()), secret))
}

fn purge(matches: &ArgMatches) -> Result<Errand, Message> {
    let mut body = Map::new();
    for name in ["URL", "prefix", "glob", "host", "tag"] {
        let named = texts(matches, name);
        if !named.is_empty() {
            body.insert(name.to_lowercase(), json!(named));
        }
    }
    if matches.get_flag("all") {
        body.insert("all".to_owned(), json!(true));
    }
    if body.is_empty() {
        return Err(wrong(
            "purge: nothing named; type URLs, or --prefix, --glob, --host, --tag or --all (see `microcache purge --help`)",
        ));
    }
    for name in ["variant", "headers"] {
        let values = texts(matches, name);
        if !values.is_empty() {
            body.insert(name.to_owned(), json!(values));
        }
    }
    for name in ["soft", "refresh"] {
        if matches.get_flag(name) {
            body.insert(name.to_owned(), json!(true));
        }
    }
    Ok(Errand::Purge(body.into()))
}

fn warm(matches: &ArgMatches) -> Result<Errand, Message> {
    let sitemap = texts(matches, "sitemap").pop();
    let list = match (sitemap, file(matches, "file")) {
        (Some(url), None) => WarmList::Sitemap(url),
        (None, Some(list)) => WarmList::File(list),
        _ => {
            return Err(wrong(
                "warm: name either a sitemap or a list; type: microcache warm --sitemap https://example.org/sitemap.xml",
            ));
        }
    };
    let rate = texts(matches, "rate").pop();
    Ok(Errand::Warm(Warm { list, rate }))
}

fn explain(matches: &ArgMatches) -> Result<Errand, Message> {
    let Some(url) = texts(matches, "URL").into_iter().next() else {
        return Err(wrong(
            "explain: no URL; type: microcache explain http://localhost:8080/page",
        ));
    };
    let mut body = Map::new();
    body.insert("url".to_owned(), json!(url));
    body.insert("headers".to_owned(), json!(texts(matches, "headers")));
    for name in ["method", "from"] {
        if let Some(values) = texts(matches, name).pop() {
            body.insert(name.to_owned(), json!(values));
        }
    }
    body.insert("fetch".to_owned(), json!(matches.get_flag("fetch")));
    Ok(Errand::Explain(body.into()))
}

fn maintenance(matches: &ArgMatches) -> Result<MaintenanceErrand, Message> {
    let state = texts(matches, "STATE").concat();
    let allow = texts(matches, "allow");
    let retry_after = texts(matches, "retry_after").pop();
    let keeps_cached = matches.get_flag("keep-cached");
    let is_plain = allow.is_empty() && retry_after.is_none() && !keeps_cached;
    match state.as_str() {
        "off" if is_plain => Ok(MaintenanceErrand::Off),
        "status" | "" if is_plain => Ok(MaintenanceErrand::Status),
        "on" => {
            let mut body = json!({ "allow": allow, "keep_cached": keeps_cached });
            if let Some(text) = retry_after {
                let Ok(seconds) = text.parse::<u32>() else {
                    return Err(wrong(&format!(
                        "maintenance: --retry-after {text}: a number of seconds is needed, such as 600"
                    )));
                };
                body["retry_after"] = json!(seconds);
            }
            Ok(MaintenanceErrand::On(body))
        }
        "off" | "status" | "" => Err(wrong(
            "maintenance: --allow, --retry-after and --keep-cached go with on; type: microcache maintenance on",
        )),
        other => Err(wrong(&format!(
            "maintenance: `{other}` is unknown; type: microcache maintenance on, off or status"
        ))),
    }
}

fn parameters(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let url = texts(matches, "URL").into_iter().map(|url| ("url", url));
    let others = SCOPES.iter().chain(&FILTERS).filter_map(|one| {
        let value = matches.get_one::<String>(one.name)?;
        Some((one.name, value.clone()))
    });
    url.chain(others).collect()
}
