//! `microcache demo`: what is on its command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use microcache_bench::demo::Settings;
use microcache_proxy::config::units;

use super::{Message, switch, wrong};

/// The most connections: a demonstration is no load test.
const MAX_CONNECTIONS: u64 = 1000;

/// The longest that each set-up is shown, and that a render takes.
const MAX_DURATION: Duration = Duration::from_hours(1);

pub(super) fn command() -> Command {
    let flag = |name: &'static str, value| Arg::new(name).long(name).value_name(value);
    Command::new("demo")
        .about("A slow page by itself, behind a plain cache, and behind Microcache; it takes 40 s")
        .help_template("{about}\n\n{before-help}\n")
        .before_help(HELP)
        .arg(flag("phase", "DURATION").value_parser(duration))
        .arg(flag("work", "DURATION").value_parser(duration))
        .arg(flag("connections", "N").value_parser(value_parser!(u64).range(1..=MAX_CONNECTIONS)))
        .arg(flag("origin-listen", "ADDRESS").value_parser(address))
        .arg(flag("listen", "ADDRESS").value_parser(address))
        .arg(switch("keep"))
}

/// The cache of the demonstration is this program.
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

const HELP: &str = "\
Usage:
  microcache demo [FLAGS]

Flags:
  --phase DURATION                    How long each of the three set-ups is shown [10s]
  --work DURATION                     What a render of the page costs, in CPU time [180ms]
  --connections N                     How many connections ask for the page [10]
  --keep                              Leave application and cache running until Ctrl-C
  --origin-listen ADDRESS             Where the application listens [a free port]
  --listen ADDRESS                    Where the cache listens in the end [a free port]";
