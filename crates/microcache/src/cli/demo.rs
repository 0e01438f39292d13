//! The command line of `microcache demo`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use microcache_bench::demo::Settings;
use microcache_proxy::config::units;

use super::help::Layout;
use super::{Message, switch, wrong};

/// The maximum number of connections: a demonstration is not a load test.
const MAX_CONNECTIONS: u64 = 1000;

/// The longest phase, and the longest render.
const MAX_DURATION: Duration = Duration::from_hours(1);

pub(super) fn command() -> Command {
    let flag = |name: &'static str, value, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let connections = value_parser!(u64).range(1..=MAX_CONNECTIONS);
    let command = Command::new("demo")
        .about("Show a slow page alone, behind a plain cache and behind Microcache (40 s)")
        .arg(
            flag(
                "phase",
                "DURATION",
                "Duration of each of the three phases [10s]",
            )
            .value_parser(duration),
        )
        .arg(
            flag(
                "work",
                "DURATION",
                "CPU time of a render of the page [180ms]",
            )
            .value_parser(duration),
        )
        .arg(flag("connections", "N", "Concurrent clients [10]").value_parser(connections))
        .arg(switch("keep").help("Leave application and cache running until Ctrl-C"))
        .arg(
            flag(
                "origin-listen",
                "ADDRESS",
                "Address of the application [free port]",
            )
            .value_parser(address),
        )
        .arg(flag("listen", "ADDRESS", "Address of the cache [free port]").value_parser(address));
    let layout = Layout {
        usage: "microcache demo [FLAGS]",
        examples: "microcache demo\nmicrocache demo --phase 5s --keep",
        notes: "",
    };
    layout.apply(command)
}

/// Reads the settings. The cache of the demonstration is this program.
pub(super) fn read(matches: &ArgMatches) -> Result<Settings, Message> {
    let program: PathBuf = std::env::current_exe().map_err(|error| {
        wrong(&format!(
            "demo: cannot find the program's own file: {error}"
        ))
    })?;
    let mut settings = Settings::new(program);
    if let Some(&phase) = matches.get_one("phase") {
        settings.phase = phase;
    }
    if let Some(&work) = matches.get_one("work") {
        settings.work = work;
    }
    if let Some(&connections) = matches.get_one::<u64>("connections") {
        settings.connections = connections as usize;
    }
    if let Some(&address) = matches.get_one("origin-listen") {
        settings.origin_listen = address;
    }
    if let Some(&address) = matches.get_one("listen") {
        settings.listen = address;
    }
    settings.keep = matches.get_flag("keep");
    Ok(settings)
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    units::parse_duration(text)
        .filter(|duration| !duration.is_zero() && *duration <= MAX_DURATION)
        .ok_or("expected a duration up to 1h, such as 10s")
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "expected an address and a port, such as 127.0.0.1:8080")
}
