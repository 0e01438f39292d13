//! URL files in the format of siege: one URL per line, optionally with `POST` and a body; variables as
//! `NAME=value` and `$(NAME)` or `${NAME}`; comments start with `#`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::target::{LoadTarget, TargetUrl};

/// Reads a URL file.
///
/// # Errors
///
/// A message for the user, with the line and a correction.
pub fn read(path: &Path) -> Result<Vec<LoadTarget>, String> {
    let text =
        fs::read_to_string(path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    parse(&path.display().to_string(), &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<LoadTarget>, String> {
    let mut variables = BTreeMap::new();
    let mut targets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let read = read_line(line, &mut variables).map_err(|why| {
            let number = number + 1;
            format!("{name}:{number}: {why}")
        })?;
        targets.extend(read);
    }
    if targets.is_empty() {
        return Err(format!("{name}: no URL found; expected one per line"));
    }
    Ok(targets)
}

fn read_line(
    line: &str,
    variables: &mut BTreeMap<String, String>,
) -> Result<Option<LoadTarget>, String> {
    if let Some((name, value)) = line
        .split_once('=')
        .filter(|(name, _)| is_name(name.trim()))
    {
        let value = value.trim().trim_matches('"');
        let value = replace(value, variables)?;
        variables.insert(name.trim().to_owned(), value);
        return Ok(None);
    }
    let line = replace(line, variables)?;
    let (url, rest) = line
        .split_once(char::is_whitespace)
        .unwrap_or((line.as_str(), ""));
    let url = TargetUrl::parse(url)?;
    let rest = rest.trim_start();
    if rest.is_empty() {
        return Ok(Some(LoadTarget::get(url)));
    }
    let (method, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if !matches!(method, "POST" | "PUT" | "PATCH" | "DELETE" | "GET" | "HEAD") {
        return Err(format!(
            "`{method}` after the URL is not a method; expected POST and a body, or nothing"
        ));
    }
    Ok(Some(LoadTarget {
        url,
        method: method.to_owned(),
        body: body_of(body.trim())?,
    }))
}

/// Returns the body, or the content of FILE for `<FILE`.
fn body_of(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('<') {
        Some(file) => {
            let file = file.trim();
            fs::read(file).map_err(|why| format!("cannot read the body in {file}: {why}"))
        }
        None => Ok(text.as_bytes().to_vec()),
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Expands `$(NAME)` and `${NAME}`.
fn replace(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let close = match after.chars().next() {
            Some('(') => ')',
            Some('{') => '}',
            _ => {
                out.push('$');
                rest = after;
                continue;
            }
        };
        let (name, behind) = after[1..]
            .split_once(close)
            .ok_or_else(|| format!("`${after}` has no closing {close}"))?;
        let value = variables
            .get(name)
            .ok_or_else(|| format!("{name} is not defined; add {name}=… on an earlier line"))?;
        out.push_str(value);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siege_files_are_read() {
        let text = "\
# The shop
HOST = shop.example:8080
PATH=\"$(HOST)/a\"

http://${HOST}/
  http://$(PATH)/b?x=1&y=$
https://shop.example/login POST user=a b&pass=c
http://shop.example/x PUT
http://shop.example/[1-3]
";
        let targets = parse("urls.txt", text).expect("it is well-formed");
        let shown: Vec<_> = targets
            .iter()
            .map(|t| {
                let body = String::from_utf8_lossy(&t.body);
                format!("{} {} {body}", t.method, t.url)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "GET http://shop.example:8080/ ",
                "GET http://shop.example:8080/a/b?x=1&y=$ ",
                "POST https://shop.example/login user=a b&pass=c",
                "PUT http://shop.example/x ",
                "GET http://shop.example/[1-3] ",
            ]
        );
    }

    #[test]
    fn a_bad_line_is_named_with_a_remedy() {
        for (text, says) in [
            (
                "http://a/\nlocalhost/x",
                "urls.txt:2: `localhost/x` is not a URL; did you mean http://",
            ),
            (
                "\n\nhttp://$(HOST)/",
                "urls.txt:3: HOST is not defined; add HOST=",
            ),
            ("http://${HOST/", "urls.txt:1: `${HOST/` has no closing }"),
            (
                "http://a/ POTS x",
                "urls.txt:1: `POTS` after the URL is not a method; expected POST",
            ),
            (
                "http://a/ POST <no/such/file",
                "urls.txt:1: cannot read the body in no/such/file",
            ),
            ("# nothing", "urls.txt: no URL found"),
        ] {
            let message = parse("urls.txt", text).expect_err(text);
            assert!(message.starts_with(says), "{text:?}: {message}");
        }
    }
}
