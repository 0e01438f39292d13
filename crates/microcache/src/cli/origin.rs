//! `microcache origin`: what is on its command line.

use std::fmt::Write;

use clap::{Arg, ArgAction, ArgMatches, Command};
use microcache_bench::origin::{ORIGIN_OPTIONS, OriginOption, PRESETS, Settings};

use super::{Message, is_typed, values};

pub(super) fn command() -> Command {
    Command::new("origin")
        .about("A simulated slow application, to put a cache in front of")
        .help_template("{about}\n\n{before-help}\n")
        .before_help(help())
        .arg(Arg::new("like").long("like").value_name("PRESET"))
        .args(ORIGIN_OPTIONS.iter().map(argument))
}

/// A preset first; flags override it.
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

fn refused(wrong: &microcache_bench::origin::Wrong) -> Message {
    Message::Wrong(format!("origin: --{wrong}"))
}

fn argument(option: &OriginOption) -> Arg {
    let arg = Arg::new(option.name).long(option.name);
    match option.takes {
        "" => arg.action(ArgAction::SetTrue),
        name => arg.value_name(name).allow_hyphen_values(true),
    }
}

fn help() -> String {
    let mut text = String::from("Usage:\n  microcache origin [FLAGS]\n\nPresets:\n");
    for (name, about) in PRESETS {
        let _ = writeln!(text, "  {name:<36}{about}");
    }
    text.push_str("\nFlags, with the default unless a preset says otherwise:\n");
    let like = "--like PRESET";
    let _ = writeln!(
        text,
        "  {like:<36}Begin with a preset; the other flags override it"
    );
    for option in ORIGIN_OPTIONS {
        let flag = format!("--{} {}", option.name, option.takes);
        let mark = if option.per_request() { "*" } else { " " };
        let _ = writeln!(text, "{mark} {flag:<36}{}", option.help);
    }
    text.push_str(
        "\n* A request may ask for its own page: /any/url?size=1000&work=50ms&etag\n\
         The counters: GET /_origin/counters (?url=/one for one url), DELETE sets them to zero.",
    );
    text
}
