//! The command line: its definition, its help, and its errors.

mod bench;
mod demo;
mod fetch;
mod help;
pub(crate) mod manual;
mod operate;
mod origin;
mod php;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use bench::Bench;
use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
pub(crate) use fetch::{Fetch, PrintedParts, Proxy, Usage};
use help::Layout;
use microcache_proxy::config::{self, Flag, Source, Takes};
pub(crate) use operate::{AdminAddress, Errand, MaintenanceErrand, Operate, Warm, WarmList};

/// A command, with its arguments.
#[derive(Debug, PartialEq)]
pub(crate) enum Job {
    /// Serves a configuration.
    Serve(Source),
    /// Reports the mistakes in a file.
    Check(PathBuf),
    /// Generates load and measures latency.
    Bench(Box<Bench>),
    /// Runs the demonstration.
    Demo(microcache_bench::demo::Settings),
    /// Fetches a URL through a cache.
    Fetch(Box<Fetch>),
    /// Serves a simulated slow application.
    Origin(microcache_bench::origin::Settings),
    /// Sends a request to the admin interface of a running server.
    Operate(Operate),
    /// Shows a running server on the terminal.
    Top(AdminAddress),
    /// Prints a text.
    Print(String),
    /// Writes the manual into a directory.
    Manual(PathBuf),
}

/// A text to print in place of a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Help or the version.
    Help(String),
    /// An error in one line, with its remedy.
    Wrong(String),
}

/// Parses the command line.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Job, Message> {
    let matches = command()
        .try_get_matches_from(arguments)
        .map_err(|error| answer(&error))?;
    match matches.subcommand() {
        Some(("check", matches)) => match file(matches, "FILE") {
            Some(file) => Ok(Job::Check(file)),
            None => Err(wrong("check: no file named; type: microcache check FILE")),
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
            "config: nothing to print; type: microcache config --sample, or microcache config --reference",
        )),
        None => start(&matches).map(Job::Serve),
    }
}

fn wrong(what: &str) -> Message {
    Message::Wrong(what.to_owned())
}

fn start(matches: &ArgMatches) -> Result<Source, Message> {
    let mut start = Source {
        file: file(matches, "config"),
        urls: texts(matches, "URL"),
        flags: config::flags()
            .map(|flag| flag.option)
            .filter(|option| is_typed(matches, option))
            .map(|option| (option, values(matches, option)))
            .collect(),
    };
    php::apply(matches, &mut start)?;
    if start.file.is_none() && start.urls.is_empty() {
        if let Some(what) = swallowed_url(&start) {
            return Err(Message::Wrong(what));
        }
        return Err(wrong(
            "no origin; type the URL of the application, such as: microcache http://localhost:3000",
        ));
    }
    match start.urls.iter().find(|url| is_plain_word(url)) {
        Some(word) => Err(Message::Wrong(unknown_command(word))),
        None => Ok(start),
    }
}

/// Returns `true` for an argument that has neither the scheme of a URL nor a dot, port or path, which an origin
/// without its scheme has.
fn is_plain_word(argument: &str) -> bool {
    let is_number = argument.bytes().all(|byte| byte.is_ascii_digit());
    !is_number && !argument.contains(['.', ':', '/'])
}

/// Explains an argument that is neither a URL nor, in its place, a command.
fn unknown_command(word: &str) -> String {
    let main = command();
    let names = || main.get_subcommands().map(Command::get_name);
    let help = "`microcache --help` lists the commands";
    if names().any(|name| name == word) {
        return format!("`{word}` is a command and comes first: microcache {word}; {help}");
    }
    match config::nearest(word, names()) {
        Some(meant) => format!(
            "`{word}` is neither a URL nor a command; did you mean `microcache {meant}`? {help}"
        ),
        None => format!(
            "`{word}` is neither a URL nor a command; {help}, and an origin is a URL such as http://{word}:3000"
        ),
    }
}

/// Explains the missing URL: a flag without its value takes the argument that follows.
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

/// Returns the placeholder for the value of a flag.
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

/// Returns the values of an option; none for a flag without values.
fn values(matches: &ArgMatches, option: &str) -> Vec<String> {
    match matches.try_get_many::<String>(option) {
        Ok(Some(values)) => values.cloned().collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn command() -> Command {
    let main = Command::new("microcache")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A caching reverse proxy: give it the URL of a slow web application.")
        .help_template("{about}\n\n{before-help}\n")
        .styles(Styles::plain())
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .arg(Arg::new("URL").num_args(0..))
        .arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help_heading("Configuration")
                .help(CONFIG_HELP),
        )
        .args(config::flags().map(|flag| flag_arg(&flag)))
        .args(php::args())
        .subcommand(check_command())
        .subcommand(config_command())
        .subcommands(operate::commands())
        .subcommand(demo::command())
        .subcommand(bench::command())
        .subcommand(fetch::command())
        .subcommand(origin::command())
        .subcommands(manual::commands());
    let (short, long) = (short_help(&main), long_help(&main));
    main.before_help(short)
        .before_long_help(long)
        .after_long_help(UNITS)
}

fn check_command() -> Command {
    let command = Command::new("check")
        .about("Report every mistake in a configuration file")
        .arg(Arg::new("FILE").value_parser(value_parser!(PathBuf)));
    let layout = Layout {
        usage: "microcache check FILE",
        examples: "microcache check /etc/microcache/microcache.toml",
        notes: "Exit status: 0 if the file can be served, 2 if it has mistakes.",
    };
    layout.apply(command)
}

fn config_command() -> Command {
    let command = Command::new("config")
        .about("Print a commented sample file, or the reference of all options")
        .arg(switch("sample").help("A file with all options, commented"))
        .arg(switch("reference").help("The reference of all options, in Markdown"));
    let layout = Layout {
        usage: "microcache config --sample\nmicrocache config --reference",
        examples: "microcache config --sample > microcache.toml",
        notes: "",
    };
    layout.apply(command)
}

/// Returns the help of `-h`: one screen.
fn short_help(main: &Command) -> String {
    let mut text = String::new();
    help::section(&mut text, "Usage", USAGE);
    help::section(&mut text, "Examples", EXAMPLES);
    text.push_str("\nFlags (all of them: microcache --help):\n");
    help::brief_row(&mut text, "--config FILE", CONFIG_HELP);
    for flag in config::flags() {
        if let Some(brief) = flag.brief {
            let name = format!("--{} {}", long(flag.option), placeholder(flag.takes));
            help::brief_row(&mut text, &name, brief);
        }
    }
    let names: Vec<_> = main.get_subcommands().map(Command::get_name).collect();
    help::section(&mut text, COMMANDS, &help::lines(&names.join(", "), 2));
    text.trim().to_owned()
}

/// Returns the help of `--help`: every command and every flag, by group.
fn long_help(main: &Command) -> String {
    let mut commands = String::new();
    for command in main.get_subcommands() {
        let about = command.get_about().map(ToString::to_string);
        help::row(
            &mut commands,
            command.get_name(),
            &about.unwrap_or_default(),
        );
    }
    let layout = Layout {
        usage: USAGE,
        examples: EXAMPLES,
        notes: UNITS,
    };
    let text = layout.text(main);
    text.replacen(
        "\n\nConfiguration:",
        &format!("\n\nCommands:\n{commands}\nConfiguration:"),
        1,
    )
}

/// Returns the help of a flag, with its default.
fn meaning(flag: &Flag) -> String {
    match flag.default.trim_matches(['[', ']']) {
        "" | "false" | "none" | "{}" => flag.help.to_owned(),
        default => format!("{} [{}]", flag.help, default.replace('"', "")),
    }
}

/// The heading of the commands in the short help.
const COMMANDS: &str = "Commands (each: microcache COMMAND --help)";

const CONFIG_HELP: &str = "Configuration file; flags override it";

const USAGE: &str = "\
microcache [FLAGS] URL...           cache the application at this URL
microcache [FLAGS] --config FILE    the same, configured by a file";

const EXAMPLES: &str = "\
microcache http://localhost:3000
microcache --php /var/www/html
microcache --acme example.org --disk /var/cache/mc,10GiB http://localhost:3000";

const UNITS: &str = "\
Durations are 500ms, 1s, 10m, 1d; sizes are 64MiB, 1GB. Every flag is an option
of the file too, with `_` for `-`; `microcache config --reference` explains
each. A flag for a list, such as --listen, may be repeated, or take several
values with commas between them.";

fn long(option: &str) -> String {
    option.replace('_', "-")
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue)
}

fn flag_arg(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.option)
        .long(long(flag.option))
        .help_heading(flag.group)
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

/// Condenses an error of clap, which has several paragraphs, to one line: the error and the tip.
fn one_line(error: &str) -> String {
    let mut lines = error.lines().map(str::trim);
    let fault = lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    let tip = lines
        .filter_map(|line| line.strip_prefix("tip: "))
        .find(|tip| !tip.starts_with("to pass"));
    let job = error
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
    fn an_invalid_command_line_gets_one_line() {
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
        check(
            "microcache chekc",
            "`chekc` is neither a URL nor a command; did you mean `microcache check`? `microcache --help`",
        );
        check(
            "microcache nosuch",
            "`nosuch` is neither a URL nor a command; `microcache --help` lists the commands",
        );
        check("microcache check", "microcache check FILE");
        check("microcache config", "--sample");
        check(
            "microcache http://a check f",
            "`check` is a command and comes first: microcache check",
        );
    }
}
