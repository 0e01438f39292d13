//! Masking of users and passwords in addresses.

use microcache_push::FleetSettings;

/// Returns the text with secrets replaced by stars, of the same width.
pub(super) fn masked(text: &str) -> String {
    let ends_word = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',');
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(ends_word) {
        let secret = secret_in(word);
        for (at, char) in word.char_indices() {
            let hidden = secret.iter().any(|range| range.contains(&at));
            out.push(if hidden { '*' } else { char });
        }
    }
    out
}

/// Returns the text without its secrets.
pub(super) fn without_secrets(text: &str) -> String {
    let secrets = secret_in(text);
    let is_shown = |at: &usize| !secrets.iter().any(|range| range.contains(at));
    let shown = text.char_indices().filter(|(at, _)| is_shown(at));
    shown.map(|(_, char)| char).collect()
}

/// Returns the secrets of one word: the part before an `@`, and passwords among parameters.
fn secret_in(word: &str) -> Vec<std::ops::Range<usize>> {
    let mut secrets = Vec::new();
    let start = word.find("://").map_or(0, |at| at + 3);
    let known = word[start..].rfind('@').map(|at| start..start + at);
    if let Some(user) = known
        && (start > 0 || word[user.clone()].contains(':'))
    {
        secrets.push(user);
    }
    // A word may also be the end of a URL with several hosts.
    if let Some(query) = word.find('?') {
        let mut at = query + 1;
        for parameter in word[at..].split_inclusive('&') {
            if let Some((name, _)) = parameter.split_once('=')
                && name.contains("pass")
            {
                let end = parameter.trim_end_matches(['&', '"', '\'', ',']).len();
                secrets.push(at + name.len() + 1..at + end);
            }
            at += parameter.len();
        }
    }
    secrets
}

/// Returns the shared store without users and passwords, which a reload applies.
pub(super) fn without_login(fleet: &FleetSettings) -> FleetSettings {
    FleetSettings {
        urls: fleet.urls.iter().map(|url| without_secrets(url)).collect(),
        ..fleet.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn users_and_passwords_are_not_shown() {
        for (text, shown) in [
            ("redis://u:pw@cache:6379/0", "redis://****@cache:6379/0"),
            ("redis://:p@w@cache", "redis://****@cache"),
            (
                r#"redis = ["rediss://u:é@a", "redis://b"]"#,
                r#"redis = ["rediss://***@a", "redis://b"]"#,
            ),
            (r#"redis = "u:pw@a""#, r#"redis = "****@a""#),
            (
                "unix:///run/redis.sock?db=1&pass=pw",
                "unix:///run/redis.sock?db=1&pass=**",
            ),
            (
                r#"redis = "unix:///run/r?pass=pw""#,
                r#"redis = "unix:///run/r?pass=**""#,
            ),
            (
                "redis-sentinel://u:pw@a:1,b:2/m?sentinel_password=pw",
                "redis-sentinel://****@a:1,b:2/m?sentinel_password=**",
            ),
            ("http://a/?x=1", "http://a/?x=1"),
            ("mail me@example.org", "mail me@example.org"),
        ] {
            assert_eq!(masked(text), shown);
        }
    }
}
