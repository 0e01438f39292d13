//! What is on the command line, and what is said when it makes no sense.

mod bench;
mod demo;
mod fetch;
pub(crate) mod manual;
mod operate;
mod origin;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

pub(crate) use bench::Bench;
use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
pub(crate) use fetch::{Fetch, Proxy, Shown, Usage};
use microcache_proxy::config::{self, Flag, Source, Takes};
pub(crate) use operate::{Errand, Operate, Operated};

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Job {
    /// Serve what this says.
    Serve(Source),
    /// Say what is wrong with a file.
    Check(PathBuf),
    /// Make a load, and measure.
    Bench(Box<Bench>),
    /// Show what it does.
    Demo(microcache_bench::demo::Settings),
    /// Fetch a url.
    Fetch(Box<Fetch>),
    /// Be a slow application.
    Origin(microcache_bench::origin::Settings),
    /// Ask something of a running server.
    Operate(Operate),
    /// Show what a running server does.
    Top(Operated),
    /// Print this.
    Print(String),
    /// Write the manual into this folder.
    Manual(PathBuf),
}

/// What is said instead of doing something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Help or the version.
    Help(String),
    /// What is wrong, in one line, and what to type.
    Wrong(String),
}

/// Reads the command line.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Job, Message> {
    let matches = command()
        .try_get_matches_from(arguments)
        .map_err(|error| answer(&error))?;
    match matches.subcommand() {
        Some(("check", matches)) => match file(matches, "FILE") {
            Some(file) => Ok(Job::Check(file)),
            None => Err(wrong("which file? Type: microcache check FILE")),
        },
        Some(("bench", matches)) => bench::read(matches).map(|bench| Job::Bench(Box::new(bench))),
        Some(("demo", matches)) => demo::read(matches).map(Job::Demo),
        Some(("fetch", matches)) => fetch::read(matches).map(|fetch| Job::Fetch(Box::new(fetch))),
        Some(("origin", matches)) => origin::read(matches).map(Job::Origin),
        Some((name, matches)) if operate::NAMES.contains(&name) => {
            operate::read(name, matches).map(Job::Operate)
        }
        Some((operate::TOP, matches)) => operate::server(operate::TOP, matches).map(Job::Top),
        Some((name, matches)) if manual::NAMES.contains(&name) => manual::read(name, matches),
        Some((_, matches)) if matches.get_flag("sample") => Ok(Job::Print(config::sample())),
        Some((_, matches)) if matches.get_flag("reference") => Ok(Job::Print(config::reference())),
        Some(_) => Err(wrong(
            "what of it? Type: microcache config --sample, or microcache config --reference",
        )),
        None => start(&matches).map(Job::Serve),
    }
}

fn wrong(what: &str) -> Message {
    Message::Wrong(what.to_owned())
}

fn start(matches: &ArgMatches) -> Result<Source, Message> {
    let start = Source {
        file: file(matches, "config"),
        urls: texts(matches, "URL"),
        flags: config::flags()
            .map(|flag| flag.option)
            .filter(|option| is_typed(matches, option))
            .map(|option| (option, values(matches, option)))
            .collect(),
    };
    if start.file.is_none() && start.urls.is_empty() {
        if let Some(what) = swallowed_url(&start) {
            return Err(Message::Wrong(what));
        }
        return Err(wrong(
            "where is the application? Type its url, such as: microcache http://localhost:3000",
        ));
    }
    for word in start.urls.iter().filter(|url| !url.contains("://")) {
        let jobs = [
            "bench",
            "check",
            "config",
            "demo",
            "fetch",
            "origin",
            operate::TOP,
        ];
        let jobs = jobs.into_iter().chain(operate::NAMES).chain(manual::NAMES);
        if let Some(meant) = config::nearest(word, jobs) {
            let what =
                format!("cannot use `{word}` as an origin; did you mean `microcache {meant}`?");
            return Err(Message::Wrong(what));
        }
    }
    Ok(start)
}

/// A flag without its value takes the url that follows.
fn swallowed_url(start: &Source) -> Option<String> {
    let is_url = |value: &&String| value.starts_with("http://") || value.starts_with("https://");
    let (option, url) = start
        .flags
        .iter()
        .find_map(|(option, values)| Some((*option, values.iter().rfind(is_url)?)))?;
    let flag = config::flags().find(|flag| flag.option == option)?;
    let (name, value) = (long(option), placeholder(flag.takes));
    Some(format!(
        "--{name} needs a value, and `{url}` was taken for it; type: microcache --{name} {value} {url}"
    ))
}

/// What stands for the value of a flag.
const fn placeholder(takes: Takes) -> &'static str {
    match takes {
        Takes::Nothing => "",
        Takes::Truth => "true|false",
        Takes::Number => "N",
        Takes::One(value) | Takes::Many(value) => value,
    }
}

fn file(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<PathBuf>(name).cloned()
}

fn texts(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches
        .get_many::<String>(name)
        .map(|values| values.cloned().collect())
        .unwrap_or_default()
}

fn is_typed(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

/// A flag without a value has nothing to give.
fn values(matches: &ArgMatches, option: &str) -> Vec<String> {
    match matches.try_get_many::<String>(option) {
        Ok(Some(values)) => values.cloned().collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn command() -> Command {
    let check = Command::new("check")
        .about("Report every mistake in a configuration file")
        .arg(
            Arg::new("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The file"),
        );
    let config = Command::new("config")
        .about("Print a commented sample file, or the reference of all options")
        .arg(switch("sample").help("Print a file with all options, commented"))
        .arg(switch("reference").help("Print what every option means, in Markdown"));
    Command::new("microcache")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A cache in front of a slow web application: bring its url, and it works.")
        .help_template("{about}\n\n{before-help}{after-help}\n")
        .before_help(help(true))
        .before_long_help(help(false))
        .styles(Styles::plain())
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .arg(Arg::new("URL").num_args(0..))
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Serve what a file says; flags override it"),
        )
        .args(config::flags().map(|flag| flag_arg(&flag)))
        .subcommand(check)
        .subcommand(config)
        .subcommand(bench::command())
        .subcommand(demo::command())
        .subcommand(fetch::command())
        .subcommand(origin::command())
        .subcommands(operate::commands())
        .subcommands(manual::commands())
}

/// How to use it, and what flags there are: the common ones or all.
fn help(short: bool) -> String {
    let mut text = String::from(USAGE);
    for flag in config::flags().filter(|flag| flag.common || !short) {
        let name = format!("--{} {}", long(flag.option), placeholder(flag.takes));
        // A flag that leaves no room beside it has its meaning on the next line.
        let (width, gap) = (FLAG_WIDTH, FLAG_WIDTH + 2);
        let meaning = meaning(&flag);
        let _ = if name.len() < width {
            writeln!(text, "  {name:<width$}{meaning}")
        } else {
            writeln!(text, "  {name}\n{:gap$}{meaning}", "")
        };
    }
    text.push_str(if short { MORE } else { UNITS });
    text
}

/// The widest flag with its value that leaves room for its meaning beside it, the blank included.
const FLAG_WIDTH: usize = 36;

/// The meaning of a flag, and its default.
fn meaning(flag: &Flag) -> String {
    match flag.default.trim_matches(['"', '[', ']']) {
        "" | "false" => flag.help.to_owned(),
        default => format!("{} [{}]", flag.help, default.replace('"', "")),
    }
}

const USAGE: &str = "\
Usage:
  microcache [FLAGS] http://HOST:PORT   serve the application at that url; several are used in turn
  microcache [FLAGS] --config FILE      serve what a file says; flags override it
  microcache check FILE                 report every mistake in a file
  microcache config --sample            print a file with all options, commented; --reference: what each means
  microcache bench [FLAGS] URL...       measure how fast a server answers; see microcache bench --help
  microcache fetch URL                  fetch a url, or take it from a cache that commands share; see microcache fetch --help
  microcache demo                       show what it does, in 40 seconds and without anything else
  microcache origin --help              be a slow application, to try a cache on
  microcache purge URL...               have a running server forget a page; see microcache purge --help
  microcache stats, microcache top      what a running server has done, and does; entries, drain, reload, upgrade: see their --help

Flags:
";

const MORE: &str = "
Durations are 500ms, 1s, 10m, 1d; sizes 64MiB, 1GB. `microcache --help` lists all flags.";

const UNITS: &str = "
Durations are 500ms, 1s, 10m, 1d; sizes 64MiB, 1GB. Every flag is an option of the file too, with `_` for `-`.
A flag that makes a list, such as --listen, may be repeated, or take several values with commas between them.";

fn long(option: &str) -> String {
    option.replace('_', "-")
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn flag_arg(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.option)
        .long(long(flag.option))
        .help(meaning(flag));
    match flag.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Truth => arg.value_name("true|false"),
        Takes::Number => arg.value_name("N").allow_hyphen_values(true),
        Takes::One(name) => arg.value_name(name).allow_hyphen_values(true),
        Takes::Many(name) => arg.value_name(name).action(ArgAction::Append),
    }
}

fn answer(error: &clap::Error) -> Message {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Message::Help(error.to_string()),
        _ => Message::Wrong(one_line(&error.to_string())),
    }
}

/// What clap says in several paragraphs, as one line: the fault and the tip.
fn one_line(told: &str) -> String {
    let mut lines = told.lines().map(str::trim);
    let fault = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    let tip = lines
        .filter_map(|line| line.strip_prefix("tip: "))
        .find(|tip| !tip.starts_with("to pass"));
    let job = told
        .lines()
        .find_map(|line| line.strip_prefix("Usage: microcache "))
        .and_then(|usage| usage.split(' ').next())
        .filter(|word| word.starts_with(char::is_lowercase))
        .map(|job| format!(" {job}"));
    let list = format!(
        "`microcache{} --help` lists all flags",
        job.unwrap_or_default()
    );
    format!("{fault}; {}", tip.unwrap_or(&list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Job, Message> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn urls_and_flags_reach_the_configuration() {
        let job = read(
            "microcache http://a --listen 127.0.0.1:1 --ttl=2s http://b --listen [::1]:2 --pass",
        );
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            job,
            Ok(Job::Serve(Source {
                file: None,
                urls: owned(&["http://a", "http://b"]),
                flags: vec![
                    ("listen", owned(&["127.0.0.1:1", "[::1]:2"])),
                    ("ttl", owned(&["2s"])),
                    ("pass", vec![]),
                ],
            }))
        );
    }

    #[test]
    fn a_file_needs_no_url() {
        let Ok(Job::Serve(start)) = read("microcache --config a.toml") else {
            panic!("not a start");
        };
        assert_eq!(start.file, Some(PathBuf::from("a.toml")));
        assert_eq!(
            read("microcache check a.toml"),
            Ok(Job::Check("a.toml".into()))
        );
    }

    #[test]
    fn what_makes_no_sense_gets_one_line() {
        let check = |line: &str, says: &str| match read(line) {
            Err(Message::Wrong(what)) => {
                assert!(what.contains(says), "{line}: {what}");
                assert!(!what.contains('\n'), "{what}");
            }
            other => panic!("{line}: {other:?}"),
        };
        check("microcache", "microcache http://localhost:3000");
        check("microcache --tll 1s http://a", "'--ttl'");
        check("microcache --colour http://a", "--help");
        check(
            "microcache --ttl",
            "a value is required for '--ttl <DURATION>'",
        );
        check(
            "microcache --ttl 1s --ttl 2s http://a",
            "cannot be used multiple times",
        );
        check(
            "microcache origin --colour",
            "`microcache origin --help` lists all flags",
        );
        check(
            "microcache --memory http://a",
            "type: microcache --memory SIZE http://a",
        );
        check(
            "microcache --ttl 1s --listen https://a:1",
            "--listen needs a value, and `https://a:1` was taken for it",
        );
        check("microcache chekc", "did you mean `microcache check`?");
        check("microcache check", "microcache check FILE");
        check("microcache config", "--sample");
        check(
            "microcache http://a check f",
            "did you mean `microcache check`?",
        );
    }

    #[test]
    fn help_is_short_and_longer_on_demand() {
        let help = |line: &str| match read(line) {
            Err(Message::Help(text)) => text,
            other => panic!("{other:?}"),
        };
        let (short, long) = (help("microcache -h"), help("microcache --help"));
        assert!(
            short.contains("--ttl DURATION") && !short.contains("--max-fields"),
            "{short}"
        );
        assert!(
            long.contains("--ttl DURATION") && long.contains("--max-fields"),
            "{long}"
        );
        assert!(short.lines().count() <= 25, "{short}");
    }
}
