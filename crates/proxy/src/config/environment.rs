//! `${NAME}` in the strings of a file: variables of the environment.

use std::fmt;

use super::place::Place;
use super::secrets::masked;

/// Values shorter than this are hidden only in messages about their own place: `80` is in many numbers.
const DISTINCT: usize = 4;

/// A string of a file.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// The string with the values of its variables.
    value: String,
    /// The string as written, if it has variables.
    written: Option<String>,
}

impl From<String> for Text {
    fn from(value: String) -> Self {
        Self {
            value,
            written: None,
        }
    }
}

impl Text {
    /// Returns the string with the values of its variables.
    pub(super) fn value(&self) -> &str {
        &self.value
    }

    /// Returns the string without secrets: as written, if its variables contain a user or a password.
    pub(super) fn shown(&self) -> String {
        let value = masked(&self.value);
        match &self.written {
            Some(written) if value != self.value || masked(written) != *written => masked(written),
            _ => value,
        }
    }

    /// Replaces the variables of a string as written. Returns those whose values came from the environment.
    pub(super) fn expand(
        &mut self,
        lookup: &impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, ExpandError> {
        let mut used = Vec::new();
        let mut out = String::with_capacity(self.value.len());
        let mut rest = self.value.as_str();
        while let Some(at) = rest.find("${") {
            if let Some(before) = rest[..at].strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            out.push_str(&rest[..at]);
            let (inner, after) = rest[at + 2..]
                .split_once('}')
                .ok_or(ExpandError::Malformed)?;
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inner, None),
            };
            if !is_name(name) {
                return Err(ExpandError::Malformed);
            }
            let found = lookup(name);
            match (
                found.filter(|value| !value.is_empty() || default.is_none()),
                default,
            ) {
                (Some(value), _) => {
                    out.push_str(&value);
                    used.push((name.to_owned(), value));
                }
                (None, Some(default)) => out.push_str(default),
                (None, None) => return Err(ExpandError::Unset(name.to_owned())),
            }
            rest = after;
        }
        out.push_str(rest);
        if out != self.value {
            self.written = Some(std::mem::replace(&mut self.value, out));
        }
        Ok(used)
    }
}

fn is_name(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_word) && !name.as_bytes()[0].is_ascii_digit()
}

/// The variables of a string cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpandError {
    /// The variable of this name is not set, and has no default.
    Unset(String),
    /// There is no name, or no brace at its end.
    Malformed,
}

impl ExpandError {
    /// Returns how the reference begins in the file.
    pub(super) fn reference(&self) -> String {
        match self {
            Self::Unset(name) => format!("${{{name}}}"),
            Self::Malformed => "${".to_owned(),
        }
    }

    /// Returns the remedy.
    pub(super) fn remedy(&self) -> String {
        match self {
            Self::Unset(name) => {
                format!(
                    "set it where the server is started, or write a default: ${{{name}:-VALUE}}"
                )
            }
            Self::Malformed => {
                "write ${NAME} or ${NAME:-DEFAULT}; `$${` stands for the characters `${`".to_owned()
            }
        }
    }
}

impl fmt::Display for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(name) => write!(f, "the environment variable `{name}` is not set"),
            Self::Malformed => f.write_str("`${` begins no variable"),
        }
    }
}

/// A variable in a string of a file, with its value.
#[derive(Clone)]
pub(super) struct Variable {
    name: String,
    value: String,
    place: Place,
}

impl Variable {
    pub(super) fn new((name, value): (String, String), place: &Place) -> Self {
        Self {
            name,
            value,
            place: place.clone(),
        }
    }

    /// The length of the value.
    pub(super) fn len(&self) -> usize {
        self.value.len()
    }

    /// Returns a message about a place with the name instead of the value.
    pub(super) fn hide_in(&self, message: &str, place: &Place) -> String {
        if self.value.is_empty() || (self.len() < DISTINCT && !self.place.overlaps(place)) {
            return message.to_owned();
        }
        let name = format!("${{{}}}", self.name);
        let escaped = self.value.escape_debug().to_string();
        message.replace(&self.value, &name).replace(&escaped, &name)
    }
}

/// Formats the name only.
impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<(String, String), ExpandError> {
        let lookup = |name: &str| match name {
            "HOST" => Some("app".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            "URL" => Some("redis://u:pw@cache".to_owned()),
            "PW" => Some("a b@c".to_owned()),
            _ => None,
        };
        let mut text = Text::from(text.to_owned());
        text.expand(&lookup)?;
        Ok((text.value().to_owned(), text.shown()))
    }

    #[test]
    fn variables_are_replaced_once() {
        for (written, value, shown) in [
            (
                "plain $ and $HOST and {HOST}",
                "plain $ and $HOST and {HOST}",
                None,
            ),
            ("http://${HOST}:80/${HOST}", "http://app:80/app", None),
            ("${NONE:-http://a:1}", "http://a:1", None),
            ("${NONE:-}x", "x", None),
            ("${HOST:-b}", "app", None),
            ("${EMPTY}x${EMPTY:-b}", "xb", None),
            ("$${HOST}", "${HOST}", None),
            ("$$${HOST}", "$${HOST}", None),
            ("${NESTED}", "${HOST}", None),
            // Values with users and passwords are not shown.
            ("${URL}", "redis://u:pw@cache", Some("${URL}")),
            (
                "redis://u:${PW}@cache",
                "redis://u:a b@c@cache",
                Some("redis://*******@cache"),
            ),
            (
                "redis://u:${NONE:-p}@cache",
                "redis://u:p@cache",
                Some("redis://************@cache"),
            ),
        ] {
            let (got, seen) = expanded(written).unwrap();
            assert_eq!(got, value, "{written}");
            assert_eq!(seen, shown.unwrap_or(value), "{written}");
        }
    }

    #[test]
    fn unset_variables_and_malformed_ones_are_errors() {
        let unset = ExpandError::Unset("NONE".to_owned());
        for (written, error) in [
            ("a${NONE}", unset),
            ("${", ExpandError::Malformed),
            ("${HOST", ExpandError::Malformed),
            ("${}", ExpandError::Malformed),
            ("${1A}", ExpandError::Malformed),
            ("${A-B}", ExpandError::Malformed),
            ("${:-x}", ExpandError::Malformed),
        ] {
            assert_eq!(expanded(written), Err(error), "{written}");
        }
    }
}
