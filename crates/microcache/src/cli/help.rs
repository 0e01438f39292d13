//! The layout of the help: usage, examples, flags under headings, notes; at most 80 columns.

use std::fmt::Write;

use clap::{Arg, Command};

/// The width of a terminal.
const WIDTH: usize = 80;
/// The widest flag with help on the same line; a wider one has its help on the next line.
const FLAG_WIDTH: usize = 30;
/// The indentation of help below its flag.
const BELOW: usize = 10;

/// The heading of flags without one of their own.
const FLAGS: &str = "Flags";

/// The parts of a command's help besides its flags.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout<'a> {
    /// One form of the command per line.
    pub(super) usage: &'a str,
    /// One command per line.
    pub(super) examples: &'a str,
    /// Text at the end.
    pub(super) notes: &'a str,
}

impl Layout<'_> {
    /// Gives a command its help.
    pub(super) fn apply(self, command: Command) -> Command {
        let text = self.text(&command);
        let command = command
            .help_template("{about}\n\n{before-help}\n")
            .before_help(text);
        match self.notes {
            "" => command,
            notes => command.after_help(notes.to_owned()),
        }
    }

    /// Returns the text below the line that says what the command does.
    pub(super) fn text(self, command: &Command) -> String {
        let mut text = String::new();
        section(&mut text, "Usage", self.usage);
        section(&mut text, "Examples", self.examples);
        for heading in headings(command) {
            let _ = writeln!(text, "\n{heading}:");
            let of_heading = shown(command).filter(|arg| heading_of(arg) == heading);
            for arg in of_heading {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                row(&mut text, &name(arg), &help);
            }
        }
        if !self.notes.is_empty() {
            let _ = write!(text, "\n{}", self.notes);
        }
        text.trim().to_owned()
    }
}

/// Adds a heading and its lines, which are indented.
pub(super) fn section(text: &mut String, heading: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}:");
    for line in lines.lines() {
        let _ = writeln!(text, "  {line}");
    }
}

/// Adds a flag or command and its help, wrapped.
pub(super) fn row(text: &mut String, name: &str, help: &str) {
    let beside = name.chars().count() <= FLAG_WIDTH;
    let indent = if beside { FLAG_WIDTH + 4 } else { BELOW };
    let mut lines = wrapped(help, WIDTH - indent).into_iter();
    let _ = match lines.next() {
        Some(first) if beside => writeln!(text, "  {name:<FLAG_WIDTH$}  {first}"),
        Some(first) => writeln!(text, "  {name}\n{:indent$}{first}", ""),
        None => writeln!(text, "  {name}"),
    };
    for line in lines {
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
}

/// The widest common flag with its placeholder.
const BRIEF_WIDTH: usize = 33;

/// Adds a flag and its help to a help of one screen, on one line.
pub(super) fn brief_row(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "  {name:<BRIEF_WIDTH$}  {help}");
}

/// Breaks a text into lines that are indented by `indent` columns later.
pub(super) fn lines(text: &str, indent: usize) -> String {
    wrapped(text, WIDTH - indent).join("\n")
}

/// Breaks a text into lines of at most `width` characters, between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let flags = command.get_arguments().filter(|arg| !arg.is_positional());
    flags.filter(|arg| !arg.is_hide_set())
}

/// Returns the headings of a command's flags, in the order of their first flags.
fn headings(command: &Command) -> Vec<&str> {
    let mut headings: Vec<&str> = Vec::new();
    for arg in shown(command) {
        let heading = heading_of(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings
}

fn heading_of(arg: &Arg) -> &str {
    arg.get_help_heading().unwrap_or(FLAGS)
}

/// Returns a flag as it is typed: `-c, --connections N`.
fn name(arg: &Arg) -> String {
    let long = arg.get_long().unwrap_or_default();
    let mut name = match arg.get_short() {
        Some(short) => format!("-{short}, --{long}"),
        None => format!("--{long}"),
    };
    if arg.get_action().takes_values() {
        for value in arg.get_value_names().unwrap_or_default() {
            let _ = write!(name, " {value}");
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::super::{Job, Message, command, parse};

    fn help_of(command: Option<&str>, flag: &str) -> String {
        let words = ["microcache"].into_iter().chain(command).chain([flag]);
        match parse(words.map(Into::into)) {
            Err(Message::Help(text)) | Ok(Job::Print(text)) => text,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    #[test]
    fn every_help_fits_a_terminal_and_has_usage_and_flags() {
        let all = command();
        let names = all.get_subcommands().map(clap::Command::get_name);
        for name in [None].into_iter().chain(names.map(Some)) {
            for flag in ["-h", "--help"] {
                let text = help_of(name, flag);
                for line in text.lines() {
                    let width = line.chars().count();
                    // A word of its own may be longer, such as a URL.
                    let is_word = line.split_whitespace().count() == 1;
                    assert!(
                        width <= super::WIDTH || is_word,
                        "{name:?} {flag}: {width}: {line}"
                    );
                }
                assert!(text.contains("Usage:\n  microcache"), "{name:?}: {text}");
                assert!(!text.contains("\n\n\n"), "{name:?}: {text}");
            }
        }
    }

    #[test]
    fn the_short_help_is_one_screen_with_examples() {
        let text = help_of(None, "-h");
        assert!(text.lines().count() <= 31, "{text}");
        let flags = text.lines().filter(|line| line.starts_with("  --")).count();
        assert_eq!(flags, 15, "{text}");
        assert!(text.contains("Examples:\n  microcache"), "{text}");
    }

    #[test]
    fn the_long_help_has_every_flag_under_a_heading() {
        let text = help_of(None, "--help");
        for flag in microcache_proxy::config::flags() {
            let name = format!("\n  --{}", flag.option.replace('_', "-"));
            let heading = format!("\n{}:\n", flag.group);
            let at = text.find(&heading);
            assert!(at.is_some(), "{heading}");
            assert!(text[at.unwrap_or(0)..].contains(&name), "{name}: {text}");
        }
    }
}
