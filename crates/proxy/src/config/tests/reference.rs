//! The printed reference, and the texts of every option.

use super::super::*;
use super::read;

/// Returns every option of every table.
fn all_options() -> Vec<option::About> {
    let mut all: Vec<_> = options::top_level().collect();
    all.extend(options::of_a_route());
    all.extend(options::abouts(options::ORIGIN));
    all.extend(options::abouts(options::SERVERS));
    all.extend(options::abouts(options::SERVER_ENTRY));
    all.extend(options::abouts(options::HEALTH_CHECK));
    all.extend(options::abouts(options::CERTIFICATE));
    all.extend(options::abouts(options::MATCH));
    all.extend(options::abouts(options::KEY));
    all.extend(options::abouts(options::QUERY));
    all.extend(options::abouts(options::REDIRECT));
    all.extend(options::abouts(options::RESPOND));
    all.extend(options::abouts(options::REWRITE));
    all
}

#[test]
fn every_help_is_a_short_noun_phrase_in_plain_words() {
    let starts = [
        "what", "who", "whose", "whom", "how", "where", "whether", "which", "why", "when", "those",
    ];
    let private = [
        "whoever",
        "nobody",
        "somebody",
        "anybody",
        "everybody",
        "told",
        "tells",
        "whom",
    ];
    let options = all_options();
    assert!(options.len() > 180, "{}", options.len());
    for about in options {
        let (name, help) = (about.name, about.help);
        assert!((1..=80).contains(&help.chars().count()), "{name}: {help}");
        assert!(!help.ends_with(['.', ':', ';']), "{name}: {help}");
        let lower = help.to_lowercase();
        let first = lower.split([' ', '-']).next().unwrap_or_default();
        assert!(!starts.contains(&first), "{name}: {help}");
        assert!(
            about.more.is_empty() || about.more.ends_with('.'),
            "{name}: {}",
            about.more
        );
        let texts = [help, about.more, about.unset.words()];
        let text = texts.join(" ").to_lowercase();
        assert!(!text.contains("those who"), "{name}: {text}");
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let found = words.find(|word| private.contains(word));
        assert_eq!(found, None, "{name}: {text}");
    }
}

#[test]
fn the_reference_has_the_words_that_operators_search_for() {
    let reference = super::super::reference().to_lowercase();
    for term in [
        "keep-alive",
        "read timeout",
        "write timeout",
        "connect timeout",
        "idle timeout",
        "retry",
        "retried",
        "backend",
        "origin",
        "evicted",
        "revalidate",
        "stale window",
        "back-pressure",
        "drain",
        "rate limit",
        "health check",
        "coalesc",
        "queue",
        "ttl",
    ] {
        assert!(reference.contains(term), "{term}");
    }
}

#[test]
fn every_example_and_default_is_read_by_its_option() {
    for about in options::top_level() {
        let mut values = vec![about.example_in_file()];
        if matches!(about.unset, option::Unset::Is(_)) {
            values.push(about.default_in_file());
        }
        // These mean nothing without a certificate.
        let is_about_tls = options::abouts(options::TLS)[1..]
            .iter()
            .any(|tls| tls.name == about.name);
        let is_about_acme = options::abouts(options::ACME)[1..]
            .iter()
            .any(|acme| acme.name == about.name);
        let is_about_push = options::abouts(options::PUSH)[1..]
            .iter()
            .any(|push| push.name == about.name);
        let is_about_mercure = options::abouts(options::MERCURE)[1..]
            .iter()
            .any(|mercure| mercure.name == about.name);
        let needed = match (is_about_tls, is_about_acme, is_about_push, is_about_mercure) {
            (true, ..) => "tls = \"a.pem\"",
            (_, true, ..) => "acme = \"a.example\"",
            (.., true, _) if about.name.starts_with("push_redis_") => {
                "push = \"/live/\"\npush_redis = \"rediss://a\""
            }
            (.., true, _) if about.name == "push_forward_auth" => {
                "push = \"/live/\"\npush_private = \"/live/\""
            }
            (.., true, _) => "push = \"/live/\"",
            (.., true) => "mercure_publisher_key_file = \"a\"",
            _ if about.name == "trusted_headers" => "trusted_proxies = \"127.0.0.1\"",
            _ if about.name == "purge_path" => "purge_from = \"127.0.0.1\"",
            _ if about.name == "client_certificate" => "tls = \"a.pem\"\nclient_ca = \"a.pem\"",
            _ => "",
        };
        for value in values {
            read(&format!(
                "origin = \"http://a\"\n{needed}\n{} = {value}\n",
                about.name
            ));
        }
    }
}

#[test]
fn the_committed_reference_is_the_printed_one() {
    let committed = include_str!("../../../../../docs/configuration.md");
    assert!(
        committed == reference(),
        "print it again: cargo run -- config --reference > docs/configuration.md"
    );
}
