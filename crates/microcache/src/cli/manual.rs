//! `microcache completions` and `microcache man`, generated from the definition of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::help::Layout;
use super::{Job, Message, file, wrong};

pub(super) const NAMES: [&str; 2] = ["completions", "man"];

/// The column of the help in a text that is laid out by hand.
const HELP_COLUMN: usize = 38;

pub(super) fn commands() -> [Command; 2] {
    let completions = Command::new("completions")
        .about("Print the completions of the command line for a shell")
        .arg(Arg::new("SHELL").value_parser(value_parser!(Shell)));
    let completions = Layout {
        usage: "microcache completions bash|elvish|fish|powershell|zsh",
        examples: "microcache completions bash > /etc/bash_completion.d/microcache",
        notes: "",
    }
    .apply(completions);
    let man = Command::new("man")
        .about("Write the manual, one page per command, into a directory")
        .arg(Arg::new("DIR").value_parser(value_parser!(PathBuf)));
    let man = Layout {
        usage: "microcache man DIR",
        examples: "microcache man /usr/local/share/man/man1",
        notes: "The directory is created if it is missing.",
    }
    .apply(man);
    [completions, man]
}

pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Job, Message> {
    if name == "man" {
        let folder = file(matches, "DIR");
        return folder
            .map(Job::Manual)
            .ok_or_else(|| wrong("man: no directory named; type: microcache man DIR"));
    }
    match matches.get_one::<Shell>("SHELL") {
        Some(&shell) => Ok(Job::Print(completions(shell))),
        None => Err(wrong(
            "completions: no shell named; type: microcache completions bash (or elvish, fish, powershell, zsh)",
        )),
    }
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(
        shell,
        &mut described(super::command()),
        "microcache",
        &mut text,
    );
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes all pages into a directory, which is created if it is missing.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut main = described(super::command());
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

/// The sections of the main page other than its command line.
const AROUND: [(&str, &[(&str, &str)]); 3] = [
    (
        "FILES",
        &[
            (
                "/etc/microcache/microcache.toml",
                "The configuration of microcache.service. `microcache config --sample` prints all options, `microcache config --reference` explains them, and `microcache check FILE` reports mistakes.",
            ),
            (
                "/var/cache/microcache, /var/log/microcache",
                "Directories that microcache.service may write to, for the options disk, access_log and log.",
            ),
        ],
    ),
    (
        "SIGNALS",
        &[
            (
                "SIGTERM, SIGINT",
                "Drain: finish the requests in progress, and exit. A second one exits at once.",
            ),
            ("SIGHUP", "Reload the configuration file."),
            ("SIGUSR1", "Reopen the log files."),
            (
                "SIGUSR2",
                "Upgrade: a new process takes over without losing a request.",
            ),
        ],
    ),
    (
        "EXIT STATUS",
        &[
            ("0", "Success."),
            (
                "1",
                "The server cannot run: an address is in use, a tier or a log is unusable.",
            ),
            ("2", "An error in the command line or the configuration."),
            (
                "130",
                "A second signal ended the drain before all requests were finished.",
            ),
        ],
    ),
];

/// Gives a command the usage of its laid-out help, and flags without help the line that describes them there.
fn described(command: Command) -> Command {
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
                // The default is at the end of the line.
                value => arg.value_name(value.to_owned()).hide_default_value(true),
            }
        }
        _ => arg,
    });
    command.mut_subcommands(described)
}

/// Returns the help that a command has laid out, or nothing.
fn laid_out(command: &Command) -> String {
    let text = command.get_before_long_help();
    let text = text.or_else(|| command.get_before_help());
    text.map(ToString::to_string).unwrap_or_default()
}

/// Returns the placeholder and the help of a flag in a laid-out text.
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

/// Returns the text below the flags.
fn notes(command: &Command) -> Option<String> {
    let after = command.get_after_long_help();
    if let Some(text) = after.or_else(|| command.get_after_help()) {
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
    fn every_flag_of_every_command_has_help() {
        let mut command = described(super::super::command());
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
        let mut main = described(super::super::command());
        main.build();
        let text =
            |command: &Command| String::from_utf8(page(command).expect("a page")).expect("UTF-8");
        let shown = text(&main);
        // groff reads bytes; other characters would need escapes.
        for page in main.get_subcommands().chain([&main]).map(text) {
            assert!(page.is_ascii(), "{page}");
        }
        for part in [
            ".TH MICROCACHE 1",
            "\\fBmicrocache\\fR [FLAGS] \\-\\-config FILE\n",
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
            "Mark as stale instead: served while it is revalidated\n",
            "Exit status: 0",
        ] {
            assert!(shown.contains(part), "{part} is not in:\n{shown}");
        }
    }
}
