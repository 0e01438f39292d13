//! `microcache purge`, `stats`, `entries`, `explain`, `top`, `drain`, `reload` and `upgrade`: what is on their command lines.

use std::fmt::Write;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use microcache_proxy::config::Admin;
use serde_json::{Map, Value, json};

use super::{Message, file, switch, texts, wrong};

/// What is asked of a running server.
#[derive(Debug, PartialEq)]
pub(crate) struct Operate {
    pub(crate) server: Operated,
    /// Its answer is printed as it comes.
    pub(crate) json: bool,
    pub(crate) errand: Errand,
}

/// A running server, as operators reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operated {
    /// The url of its interface for operators.
    pub(crate) admin: String,
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Errand {
    /// The body of the request.
    Purge(Value),
    Stats,
    /// The parameters of the request.
    Entries(Vec<(&'static str, String)>),
    /// The body of the request.
    Explain(Value),
    Drain,
    Reload,
    Upgrade,
}

pub(super) const NAMES: [&str; 7] = [
    "purge", "stats", "entries", "explain", "drain", "reload", "upgrade",
];

/// What is shown on a terminal for as long as somebody looks.
pub(super) const TOP: &str = "top";

/// Where a server is asked of which nothing is said.
const ADMIN: &str = "127.0.0.1:8081";
/// Where packages put the configuration of the server that runs as a service.
const CONFIG: &str = "/etc/microcache/microcache.toml";

/// A parameter of the interface, which has a flag here.
struct Parameter {
    name: &'static str,
    flag: &'static str,
    value: &'static str,
    help: &'static str,
}

/// What purges and lists can name.
const NAMED: [Parameter; 4] = [
    Parameter {
        name: "prefix",
        flag: "prefix",
        value: "URL",
        help: "All urls that begin like this one",
    },
    Parameter {
        name: "glob",
        flag: "glob",
        value: "URL",
        help: "All urls like this one; * stands for any run of characters",
    },
    Parameter {
        name: "host",
        flag: "host",
        value: "HOST",
        help: "All urls of a host",
    },
    Parameter {
        name: "tag",
        flag: "tag",
        value: "TAG",
        help: "All responses with this tag (Cache-Tag, Surrogate-Key, xkey)",
    },
];

/// What can be said of the variants of a url that are to be purged.
const OF_VARIANTS: [Parameter; 2] = [
    Parameter {
        name: "variant",
        flag: "variant",
        value: "ID",
        help: "Of the url only this variant; `microcache entries URL` names them",
    },
    Parameter {
        name: "headers",
        flag: "header",
        value: "'NAME: VALUE'",
        help: "Of the url only what requests with this header get (-H)",
    },
];

/// What else lists can be asked for.
const LISTED: [Parameter; 7] = [
    Parameter {
        name: "min_size",
        flag: "min-size",
        value: "BYTES",
        help: "Of this size at least",
    },
    Parameter {
        name: "min_age",
        flag: "min-age",
        value: "SECONDS",
        help: "Of this age at least",
    },
    Parameter {
        name: "min_hits",
        flag: "min-hits",
        value: "N",
        help: "Given out so often at least",
    },
    Parameter {
        name: "order",
        flag: "order",
        value: "key|size|age|hits",
        help: "The largest of these first [key]",
    },
    Parameter {
        name: "tier",
        flag: "tier",
        value: "memory|disk",
        help: "Where to look [memory]",
    },
    Parameter {
        name: "limit",
        flag: "limit",
        value: "N",
        help: "So many at most [100]",
    },
    Parameter {
        name: "after",
        flag: "after",
        value: "PLACE",
        help: "The next page; the last one ends with its place",
    },
];

/// What can be said of a request that is asked about.
const REQUESTED: [Parameter; 3] = [
    Parameter {
        name: "headers",
        flag: "header",
        value: "'NAME: VALUE'",
        help: "A header of the request (-H); as many as there are",
    },
    Parameter {
        name: "method",
        flag: "method",
        value: "METHOD",
        help: "Its method [GET]",
    },
    Parameter {
        name: "from",
        flag: "from",
        value: "ADDRESS",
        help: "The address of the client [127.0.0.1]",
    },
];

pub(super) fn commands() -> [Command; 8] {
    let purge = command(
        "purge",
        "Have a running server forget what is named, or take it for stale",
        "microcache purge [FLAGS] [URL...]",
        NAMED.iter().chain(&OF_VARIANTS),
        &[
            ("--all", "All there is"),
            ("--soft", "Stale from now on: served while it is refreshed"),
        ],
    );
    let purge = purge
        .arg(Arg::new("URL").num_args(0..))
        .args(NAMED.iter().chain(&OF_VARIANTS).map(repeated))
        .arg(switch("all"))
        .arg(switch("soft"));
    let stats = command(
        "stats",
        "What a running server has done, and how things stand",
        "microcache stats [FLAGS]",
        [].iter(),
        &[],
    );
    let parameters = || NAMED.iter().chain(&LISTED);
    let entries = command(
        "entries",
        "What a running server has stored",
        "microcache entries [FLAGS] [URL]",
        parameters(),
        &[],
    );
    let entries = entries
        .arg(Arg::new("URL").num_args(0..=1))
        .args(parameters().map(|one| argument(one, ArgAction::Set)));
    let explain = command(
        "explain",
        "Why a request is, or is not, answered from the cache, and what to change",
        "microcache explain [FLAGS] URL",
        REQUESTED.iter(),
        &[("--fetch", "Ask the application too, as for a visitor")],
    );
    let explain = explain
        .arg(Arg::new("URL").num_args(0..=1))
        .args(REQUESTED.iter().map(repeated))
        .arg(switch("fetch"));
    let drain = command(
        "drain",
        "Have a running server finish what is under way and end",
        "microcache drain [FLAGS]",
        [].iter(),
        &[],
    );
    let reload = command(
        "reload",
        "Have a running server read its configuration file again",
        "microcache reload [FLAGS]",
        [].iter(),
        &[],
    );
    let upgrade = command(
        "upgrade",
        "Have another process, of the program as it is installed now, take a running server's place",
        "microcache upgrade [FLAGS]",
        [].iter(),
        &[],
    );
    let top = command(
        TOP,
        "What a running server does, on the terminal, second by second",
        "microcache top [FLAGS]",
        [].iter(),
        &[],
    );
    [purge, stats, entries, explain, drain, reload, upgrade, top]
}

/// How `explain` ends where the server has answered.
const EXPLAIN_ENDS: &str = "\nDone is: the request is, or will be, answered from the cache. It ends with 3 if not, and with 4 if only the \
    application could say\n(--fetch asks it).";

/// A command with the flags that all of these have.
fn command<'a>(
    name: &'static str,
    about: &'static str,
    usage: &str,
    parameters: impl Iterator<Item = &'a Parameter>,
    switches: &[(&str, &str)],
) -> Command {
    let mut help = format!("Usage:\n  {usage}\n\nFlags:\n");
    let mut line = |flag: &str, text: &str| {
        let _ = writeln!(help, "  {flag:<36}{text}");
    };
    for one in parameters {
        line(&format!("--{} {}", one.flag, one.value), one.help);
    }
    for (flag, text) in switches {
        line(flag, text);
    }
    line(
        "--config FILE",
        &format!("Its configuration, for these two [{CONFIG}]"),
    );
    line(
        "--admin URL",
        &format!("Its interface for operators [{ADMIN}]"),
    );
    line(
        "--token-file FILE",
        "The file with its secret, if it has one",
    );
    if name != TOP {
        line("--json", "Print the answer as it comes");
    }
    help.push_str("\nEnds with 0 if it was done, 1 if the server cannot be reached or failed, 2 if it refused.");
    if name == "explain" {
        help.push_str(EXPLAIN_ENDS);
    }
    let command = Command::new(name)
        .about(about)
        .help_template("{about}\n\n{before-help}\n")
        .before_help(help)
        .arg(
            Arg::new("config")
                .long("config")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(Arg::new("admin").long("admin"))
        .arg(
            Arg::new("token-file")
                .long("token-file")
                .value_parser(value_parser!(PathBuf)),
        );
    if name == TOP {
        command
    } else {
        command.arg(switch("json"))
    }
}

/// One that may be given as often as there is something to say.
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
        .action(action)
}

pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Operate, Message> {
    let errand = match name {
        "purge" => purge(matches)?,
        "entries" => Errand::Entries(parameters(matches)),
        "explain" => explain(matches)?,
        "drain" => Errand::Drain,
        "reload" => Errand::Reload,
        "upgrade" => Errand::Upgrade,
        _ => Errand::Stats,
    };
    Ok(Operate {
        server: server(name, matches)?,
        json: matches.get_flag("json"),
        errand,
    })
}

/// Which server is meant. A configuration is looked into where no address is typed: its secret is for the server
/// that it names, and for no other.
pub(super) fn server(name: &str, matches: &ArgMatches) -> Result<Operated, Message> {
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
            "{name}: --admin {admin}: the interface for operators speaks http, such as {ADMIN}"
        )));
    }
    Ok(Operated {
        admin: admin.trim_end_matches('/').to_owned(),
        token_file: file(matches, "token-file").or(secret),
    })
}

/// The address and the file with the secret that a configuration names. Without one that was named, the service's
/// counts, as far as its files can be read.
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
            "purge what? Type urls, or --prefix, --glob, --host, --tag, --all; `microcache purge --help` says more",
        ));
    }
    for name in ["variant", "headers"] {
        let said = texts(matches, name);
        if !said.is_empty() {
            body.insert(name.to_owned(), json!(said));
        }
    }
    if matches.get_flag("soft") {
        body.insert("soft".to_owned(), json!(true));
    }
    Ok(Errand::Purge(body.into()))
}

fn explain(matches: &ArgMatches) -> Result<Errand, Message> {
    let Some(url) = texts(matches, "URL").into_iter().next() else {
        return Err(wrong(
            "explain which url? Type: microcache explain http://localhost:8080/page",
        ));
    };
    let mut body = Map::new();
    body.insert("url".to_owned(), json!(url));
    body.insert("headers".to_owned(), json!(texts(matches, "headers")));
    for name in ["method", "from"] {
        if let Some(said) = texts(matches, name).pop() {
            body.insert(name.to_owned(), json!(said));
        }
    }
    body.insert("fetch".to_owned(), json!(matches.get_flag("fetch")));
    Ok(Errand::Explain(body.into()))
}

fn parameters(matches: &ArgMatches) -> Vec<(&'static str, String)> {
    let url = texts(matches, "URL").into_iter().map(|url| ("url", url));
    let others = NAMED.iter().chain(&LISTED).filter_map(|one| {
        let value = matches.get_one::<String>(one.name)?;
        Some((one.name, value.clone()))
    });
    url.chain(others).collect()
}
