//! The answer to `explain`, as text.

use std::fmt::Write;
use std::process::ExitCode;

use microcache_policy::explain::span;
use serde_json::Value;

use super::render::{list, selecting_fields, size};

/// The exit status for a request that is not a hit, and will not be.
const NOT_CACHEABLE: u8 = 3;
/// The exit status for a request whose outcome depends on the origin.
const UNKNOWN: u8 = 4;

/// Placeholder of a space at which no line is broken.
const GLUE: &str = "\u{1f}";
/// The maximum width of a line.
const WIDTH: usize = 110;

/// The exit status of the command.
pub(super) fn ends(answer: &Value) -> ExitCode {
    match answer["cacheable"].as_bool() {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => NOT_CACHEABLE.into(),
        None => UNKNOWN.into(),
    }
}

/// The verdict, its steps, and the stored variants.
pub(super) fn text(answer: &Value) -> String {
    let mut out = String::new();
    wrapped(&mut out, "", word(answer, "summary"));
    let _ = writeln!(out, "Cache-Status: {}", word(answer, "cache_status"));
    if let Some(status) = answer["fetched"]["cache_status"].as_str() {
        let _ = writeln!(out, "after fetch:  {status}");
    }
    out.push('\n');
    for (number, step) in list(&answer["steps"]).iter().enumerate() {
        let rfc = step["rfc"]
            .as_str()
            .map_or_else(String::new, |rfc| format!(" ({})", rfc.replace(' ', GLUE)));
        let line = format!(
            "{}. {}: {}{rfc}",
            number + 1,
            word(step, "message"),
            word(step, "reason")
        );
        wrapped(&mut out, "   ", &line);
        if let Some(remedy) = step["hint"].as_str() {
            wrapped(&mut out, "      ", &format!("   to change it: {remedy}"));
        }
    }
    let stored = list(&answer["stored"]);
    if !stored.is_empty() {
        out.push_str("\nstored under its key:\n");
    }
    for one in stored {
        let _ = writeln!(out, "{}", variant(one));
    }
    out
}

/// A stored response, in a line.
fn variant(one: &Value) -> String {
    let mut line = format!(
        "  {} {:<10} {}  {:<15} {:>9} of {:>9}  age {:>9}  {:>9}  {:>6} hits",
        if one["selected"] == true { "*" } else { " " },
        word(one, "tier"),
        one["status"],
        word(one, "state"),
        time(one, "ttl_seconds"),
        time(one, "fresh_for_seconds"),
        time(one, "age_seconds"),
        size(one["size"].as_u64().unwrap_or_default()),
        one["hits"],
    );
    line.push_str(&selecting_fields(list(&one["varies_on"])));
    line
}

/// A time as the steps write it; negative for the time since a response became stale.
fn time(of: &Value, name: &str) -> String {
    let millis = (of[name].as_f64().unwrap_or_default() * 1000.0).round() as i64;
    let sign = if millis < 0 { "-" } else { "" };
    format!("{sign}{}", span(millis.unsigned_abs()))
}

fn word<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

/// Wraps a text, with an indentation before all lines but the first.
fn wrapped(out: &mut String, before: &str, text: &str) {
    let lead = text.len() - text.trim_start().len();
    out.push_str(&text[..lead]);
    let mut width = lead;
    for (number, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && width + 1 + length > WIDTH {
            out.push('\n');
            out.push_str(before);
            width = before.len();
        } else if number > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(&word.replace(GLUE, " "));
        width += length;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_no_wider_than_they_may_be_and_nothing_is_lost() {
        let text = "   ".to_owned() + &"word ".repeat(60);
        let mut out = String::new();
        wrapped(&mut out, "      ", &text);
        assert!(out.lines().all(|line| line.len() <= WIDTH), "{out}");
        assert!(
            out.starts_with("   word")
                && out
                    .lines()
                    .skip(1)
                    .all(|line| line.starts_with("      word"))
        );
        assert_eq!(out.split_whitespace().count(), 60);
    }

    #[test]
    fn times_are_written_as_in_the_steps() {
        let one = json!({"ttl": -1.5, "lifetime": 600.0, "age": 1});
        let texts = ["ttl", "lifetime", "age"].map(|name| time(&one, name));
        assert_eq!(texts, ["-1.5 s", "10 min", "1 s"]);
    }

    #[test]
    fn a_script_can_tell_the_verdict_by_how_the_command_ends() {
        for (cacheable, code) in [(json!(true), 0), (json!(false), 3), (json!(null), 4)] {
            assert_eq!(ends(&json!({"cacheable": cacheable})), ExitCode::from(code));
        }
    }
}
