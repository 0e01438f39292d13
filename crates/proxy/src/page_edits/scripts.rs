//! Values of variables in the text of scripts.

use memchr::memmem;

/// A value in a script: the name of an object or nothing, and the name of a value in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptValue<'a> {
    object: &'a str,
    key: &'a str,
}

impl<'a> ScriptValue<'a> {
    /// Reads a path of names, as `wpApiSettings.nonce`.
    pub(super) fn of(path: &'a str) -> Self {
        let (object, _) = path.split_once('.').unwrap_or_default();
        let key = path.rsplit('.').next().unwrap_or_default();
        Self { object, key }
    }

    /// Replaces the values of the variable in a script, which follow `KEY:` or `KEY=` in quotes. Returns true if there is
    /// one.
    pub(super) fn replace(self, script: &mut String, value: &str) -> bool {
        let Some(mut at) = position(script, 0, self.object) else {
            return false;
        };
        let mut is_found = false;
        while let Some(found) = position(script, at, self.key) {
            at = found + self.key.len();
            if let Some((begin, end)) = quoted_value(script.as_bytes(), at) {
                script.replace_range(begin..end, value);
                at = begin + value.len();
                is_found = true;
            }
        }
        is_found
    }
}

/// Returns the place of a name from an offset on, which is not part of a longer one.
fn position(script: &str, from: usize, name: &str) -> Option<usize> {
    let text = script.as_bytes();
    let is_of_name = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
    };
    let mut places = memmem::find_iter(&text[from..], name).map(|at| from + at);
    places.find(|&at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        name.is_empty() || !is_of_name(before) && !is_of_name(text.get(at + name.len()))
    })
}

/// Returns the range of the text in quotes that is the value of the name before an offset.
fn quoted_value(script: &[u8], after_name: usize) -> Option<(usize, usize)> {
    let mut at = after_name;
    // The name may be in quotes itself.
    if matches!(script.get(at), Some(b'"' | b'\'')) {
        at += 1;
    }
    at = skip_spaces(script, at);
    if !matches!(script.get(at), Some(b':' | b'=')) {
        return None;
    }
    at = skip_spaces(script, at + 1);
    let quote = *script.get(at).filter(|byte| matches!(byte, b'"' | b'\''))?;
    let begin = at + 1;
    let mut end = begin;
    loop {
        match *script.get(end)? {
            b'\\' => end += 2,
            b'\n' => return None,
            byte if byte == quote => return Some((begin, end)),
            _ => end += 1,
        }
    }
}

fn skip_spaces(script: &[u8], from: usize) -> usize {
    let spaces = script[from..].iter();
    from + spaces.take_while(|byte| byte.is_ascii_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_value_of_a_variable_is_replaced() {
        for (path, script, expected) in [
            (
                "wpApiSettings.nonce",
                r#"var wpApiSettings = {"root":"\/","nonce":"3f0","versionString":"wp"};"#,
                r#"var wpApiSettings = {"root":"\/","nonce":"-","versionString":"wp"};"#,
            ),
            (
                "a.nonce",
                "{nonce: 'x'} a = {nonce: 'y'}",
                "{nonce: 'x'} a = {nonce: '-'}",
            ),
            (
                "token",
                "var token='a\\'b', tokens='c';",
                "var token='-', tokens='c';",
            ),
            ("a.b.token", "a.b.token = \"c\"", "a.b.token = \"-\""),
            ("token", "{\"token\" : \"\"}", "{\"token\" : \"-\"}"),
        ] {
            let mut text = script.to_owned();
            assert!(ScriptValue::of(path).replace(&mut text, "-"), "{script}");
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn other_text_stays() {
        for (path, script) in [
            ("b.nonce", "a = {nonce: 'y'}"),
            ("nonce", "nonce(\"a\")"),
            ("nonce", "nonces = 'a'; xnonce = 'b'; $nonce = 'c'"),
            ("nonce", "nonce == 'a'"),
            ("nonce", "nonce = 'a\n'"),
            ("nonce", "nonce = 'a"),
            ("nonce", "nonce = 'a\\"),
            ("nonce", "nonce = f"),
            ("nonce", "nonce"),
        ] {
            let mut text = script.to_owned();
            assert!(!ScriptValue::of(path).replace(&mut text, "-"), "{script}");
            assert_eq!(text, script);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(script in "([a-c.:='\"\\\\ \n]|\u{e9}|token){0,40}") {
            let mut text = script.clone();
            let is_found = ScriptValue::of("token").replace(&mut text, "");
            prop_assert_eq!(is_found || text == script, true);
        }
    }
}
