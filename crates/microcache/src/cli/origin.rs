//! The command line of `microcache origin`.

use clap::{Arg, ArgAction, ArgMatches, Command};
use microcache_bench::origin::{ORIGIN_OPTIONS, OriginOption, PRESETS, Settings};

use super::help::{self, Layout};
use super::{Message, is_typed, values};

pub(super) fn command() -> Command {
    let command = Command::new("origin")
        .about("Run a simulated slow application, to put a cache in front of")
        .arg(
            Arg::new("like")
                .long("like")
                .value_name("PRESET")
                .help_heading(WHOLE)
                .help("Preset to start from; the other flags override it"),
        )
        .args(ORIGIN_OPTIONS.iter().map(argument));
    let layout = Layout {
        usage: "microcache origin [FLAGS]",
        examples: "microcache origin --work 180ms\nmicrocache origin --like wordpress",
        notes: &notes(),
    };
    layout.apply(command)
}

/// The heading of options of the whole application.
const WHOLE: &str = "Application";
/// The heading of options that a request may set for itself.
const PAGE: &str = "Page (also as a query parameter: /any/url?size=1000&work=50ms&etag)";

/// Reads the settings: a preset first, which flags override.
pub(super) fn read(matches: &ArgMatches) -> Result<Settings, Message> {
    let mut settings = match matches.get_one::<String>("like") {
        Some(name) => Settings::like(name).map_err(|wrong| refused(&wrong))?,
        None => Settings::default(),
    };
    for option in ORIGIN_OPTIONS {
        if is_typed(matches, option.name) {
            let value = values(matches, option.name).concat();
            settings
                .set(option.name, &value)
                .map_err(|wrong| refused(&wrong))?;
        }
    }
    Ok(settings)
}

fn refused(wrong: &microcache_bench::origin::InvalidOption) -> Message {
    Message::Wrong(format!("origin: --{wrong}"))
}

fn argument(option: &OriginOption) -> Arg {
    let heading = if option.per_request() { PAGE } else { WHOLE };
    let arg = Arg::new(option.name)
        .long(option.name)
        .help_heading(heading)
        .help(option.help);
    match option.takes {
        "" => arg.action(ArgAction::SetTrue),
        name => arg.value_name(name).allow_hyphen_values(true),
    }
}

fn notes() -> String {
    let mut text = String::from("Presets:\n");
    for (name, about) in PRESETS {
        help::row(&mut text, name, about);
    }
    text.push_str(
        "\nDefaults are in brackets; a preset changes some of them.\n\
         Counters: GET /_origin/counters (?url=/one for one URL); DELETE resets them.",
    );
    text
}
