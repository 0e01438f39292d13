//! Parsers of names in options.

/// Parses the name of a field.
pub(super) fn field_name(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err("write the whole name of a field: this option takes no patterns".to_owned());
    }
    http::HeaderName::from_bytes(text.as_bytes())
        .map(|_| text.to_owned())
        .map_err(|_| "write a field name, such as \"X-Country\"".to_owned())
}

/// Parses a field name, optionally with `*` at the end.
pub(super) fn field_pattern(text: &str) -> Result<String, String> {
    match name_pattern(text)?.strip_suffix('*') {
        Some("") => Ok(text.to_owned()),
        Some(beginning) => field_name(beginning).map(|_| text.to_owned()),
        None => field_name(text),
    }
}

/// Parses a name, optionally with `*` at the end.
pub(super) fn name_pattern(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty() {
        return Err("the name is empty".to_owned());
    }
    if name.contains('*') {
        return Err("a `*` is allowed at the end only".to_owned());
    }
    Ok(text.to_owned())
}
