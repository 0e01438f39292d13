//! `microcache completions` and `microcache man`: what shells and `man` are told of the command line, from the definition
//! that reads it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{Job, Message, file, wrong};

pub(super) const NAMES: [&str; 2] = ["completions", "man"];

/// In the help that is laid out by hand, what a flag means stands behind two blanks and its name, which is this wide.
const HELP_COLUMN: usize = 38;

pub(super) fn commands() -> [Command; 2] {
    let completions = Command::new("completions")
        .about("Print the completions of the command line for a shell")
        .arg(
            Arg::new("SHELL")
                .value_parser(value_parser!(Shell))
                .help("Which shell"),
        );
    let man = Command::new("man")
        .about("Write the manual, a page for each command, into a folder")
        .arg(
            Arg::new("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The folder"),
        );
    [completions, man]
}

pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Job, Message> {
    if name == "man" {
        let folder = file(matches, "DIR");
        return folder
            .map(Job::Manual)
            .ok_or_else(|| wrong("man: which folder? Type: microcache man DIR"));
    }
    match matches.get_one::<Shell>("SHELL") {
        Some(&shell) => Ok(Job::Print(completions(shell))),
        None => Err(wrong(
            "completions: which shell? Type: microcache completions bash (or fish, zsh, elvish, powershell)",
        )),
    }
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut told(super::command()), "microcache", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes all pages into a folder, which is made if it is missing.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut main = told(super::command());
    main.build();
    for command in main.get_subcommands() {
        fs::write(folder.join(file_name(command)), page(command)?)?;
    }
    fs::write(folder.join(file_name(&main)), page(&main)?)
}

fn file_name(command: &Command) -> String {
    format!("{}.1", full_name(command))
}

fn full_name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title(full_name(command).to_uppercase())
        .source(concat!("microcache ", env!("CARGO_PKG_VERSION")))
        .manual("Microcache");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut more = Roff::new();
    if let Some(notes) = notes(command) {
        more.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.lines() {
            more.text([roman(line)]);
        }
        more.control("fi", []);
    }
    if command.has_subcommands() {
        for (heading, items) in AROUND {
            more.control("SH", [heading]);
            for &(what, meaning) in items {
                more.control("TP", []);
                more.text([roman(what)]).text([roman(meaning)]);
            }
        }
    }
    more.to_writer(&mut page)?;
    Ok(page)
}

/// What the page of a program says beside its command line.
const AROUND: [(&str, &[(&str, &str)]); 3] = [
    (
        "FILES",
        &[
            (
                "/etc/microcache/microcache.toml",
                "What microcache.service is started with. `microcache config --sample` prints all options, `microcache config --reference` what they mean, and `microcache check FILE` every mistake.",
            ),
            (
                "/var/cache/microcache, /var/log/microcache",
                "Where microcache.service may write: for the options disk, access_log and log.",
            ),
        ],
    ),
    (
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "Finish what is under way, and end. A second one ends at once.",
            ),
            ("SIGHUP", "Read the configuration file again."),
            ("SIGUSR1", "Open the files of the logs anew."),
            (
                "SIGUSR2",
                "Have another process take its place, without losing a request.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "It has done what it was asked for."),
            (
                "1",
                "It cannot serve: an address is not free, a tier or a log cannot be used.",
            ),
            ("2", "The command line or the file is wrong."),
            (
                "130",
                "A second signal has ended it before everything was finished.",
            ),
        ],
    ),
];

/// The commands lay out their help by hand. Here it is taken apart again, so that nothing is written twice: the usage, and
/// the line of each flag.
fn told(command: Command) -> Command {
    let text = laid_out(&command);
    let usage: Vec<String> = text
        .lines()
        .skip_while(|line| *line != "Usage:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let usage = line.trim().split("   ").next();
            usage.unwrap_or_default().to_owned()
        })
        .collect();
    let command = if usage.is_empty() {
        command
    } else {
        command.override_usage(usage.join("\n"))
    };
    let command = command.mut_args(|arg| match line_of(&arg, &text) {
        Some((value, help)) if arg.get_help().is_none() => {
            let arg = arg.help(help);
            match value {
                "" => arg,
                // The default stands at the end of the line.
                value => arg.value_name(value.to_owned()).hide_default_value(true),
            }
        }
        _ => arg,
    });
    command.mut_subcommands(told)
}

/// The help that a command has laid out, or nothing.
fn laid_out(command: &Command) -> String {
    let text = command.get_before_long_help();
    let text = text.or_else(|| command.get_before_help());
    text.map(ToString::to_string).unwrap_or_default()
}

/// What follows a flag, and what its line says of it.
fn line_of<'a>(arg: &Arg, text: &'a str) -> Option<(&'a str, String)> {
    let long = arg.get_long()?;
    text.lines().find_map(|line| {
        let (flag, help) = line.split_at_checked(HELP_COLUMN)?;
        let flag = flag.trim_start_matches([' ', '*']).strip_prefix("--")?;
        let value = flag.strip_prefix(long)?.strip_prefix(' ')?.trim();
        let help = help.trim();
        (!help.is_empty()).then(|| (value, help.to_owned()))
    })
}

/// What stands under the flags.
fn notes(command: &Command) -> Option<String> {
    if let Some(text) = command.get_after_help() {
        return Some(text.to_string());
    }
    let text = laid_out(command);
    let (_, flags) = text.split_once("\nFlags")?;
    let (_, notes) = flags.split_once("\n\n")?;
    Some(notes.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_every_command_says_what_it_means() {
        let mut command = told(super::super::command());
        command.build();
        let mut seen = 0;
        for command in command.get_subcommands().chain([&command]) {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                seen += 1;
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let (command, flag) = (command.get_name(), arg.get_id());
                assert!(!help.trim().is_empty(), "{command} --{flag} says nothing");
                assert!(!help.contains("  "), "{command} --{flag}: `{help}`");
            }
        }
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn pages_have_usage_flags_and_notes() {
        let mut main = told(super::super::command());
        main.build();
        let text =
            |command: &Command| String::from_utf8(page(command).expect("a page")).expect("UTF-8");
        let shown = text(&main);
        for part in [
            ".TH MICROCACHE 1",
            "\\fBmicrocache\\fR check FILE\n",
            "\\fB\\-\\-stale\\-while\\-revalidate\\fR \\fI<DURATION>\\fR\n",
            "microcache\\-purge(1)\n",
            "Durations are 500ms, 1s, 10m, 1d",
            ".SH \"EXIT STATUS\"",
        ] {
            assert!(shown.contains(part), "{part} is not in:\n{shown}");
        }
        let purge = main.find_subcommand("purge").expect("a command");
        let shown = text(purge);
        for part in [
            ".TH MICROCACHE-PURGE 1",
            "\\fB\\-\\-token\\-file\\fR \\fI<FILE>\\fR\n",
            "\\fBmicrocache purge\\fR [FLAGS] [URL...]\n",
            "Stale from now on: served while it is refreshed\n",
            "Ends with 0 if it was done",
        ] {
            assert!(shown.contains(part), "{part} is not in:\n{shown}");
        }
    }
}
