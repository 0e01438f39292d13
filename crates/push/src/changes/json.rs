//! Classification of media types.

/// Returns whether a media type is `application/json` or ends with `+json`.
pub(crate) fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.eq_ignore_ascii_case("application/json")
        || essence.len() > 5 && essence[essence.len() - 5..].eq_ignore_ascii_case("+json")
}

/// Checks that a body with a JSON media type is JSON.
pub(crate) fn check(media_type: &str, body: &[u8]) -> Result<(), serde_json::Error> {
    if !is_json(media_type) {
        return Ok(());
    }
    serde_json::from_slice(body).map(|_: serde::de::IgnoredAny| ())
}

/// Returns a media type without its parameters.
pub(crate) fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_several_names() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/ld+json",
        ] {
            assert!(is_json(json), "{json}");
        }
        for other in [
            "text/json",
            "application/jsonp",
            "+json",
            "",
            "text/plain; a=+json",
        ] {
            assert!(!is_json(other), "{other}");
        }
    }
}
