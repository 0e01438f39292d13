//! Whole files in, configurations or reports out.

mod authentication;
mod documents;
mod mistakes;
mod reference;
mod routes;
mod sources;

use microcache_engine::Request;

use super::*;

const FILE: &str = "microcache.toml";

fn read(text: &str) -> Config {
    let input = Input {
        file: Some((FILE, text)),
        ..Input::default()
    };
    Config::read(input).unwrap_or_else(|report| panic!("{report}"))
}

/// Returns the index of the route that a request takes.
fn route_of(config: &Config, request: &Request<'_>) -> usize {
    let input = MatchInput::new(request, None);
    let mut routes = config.routes.iter();
    let found = routes.position(|route| route.matcher.matches(&input));
    found.expect("the last route takes everything")
}

/// Reads a file that names an origin at its end, and compares the first line of every mistake and
/// its remedy.
fn check(text: &str, expected: &[&str]) {
    let text = format!("{text}\n");
    let input = Input {
        file: Some((FILE, &text)),
        urls: &["http://o".to_owned()],
        flags: &[],
    };
    let report = match Config::read(input) {
        Ok(_) => String::new(),
        Err(report) => report.to_string(),
    };
    let messages: Vec<String> = report
        .lines()
        .filter_map(|line| match line.strip_prefix(FILE) {
            Some(mistake) => Some(mistake.trim_start_matches(':').to_owned()),
            None => line
                .trim_start()
                .strip_prefix("= ")
                .map(|remedy| format!("= {remedy}")),
        })
        .collect();
    assert_eq!(messages, expected, "of:\n{text}\nreport:\n{report}");
}

fn mistakes(text: &str) -> String {
    let input = Input {
        file: Some((FILE, text)),
        ..Input::default()
    };
    Config::read(input)
        .expect_err("it has a mistake")
        .to_string()
}
