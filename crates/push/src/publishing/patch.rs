//! What a patch makes of a JSON document.

use std::sync::Arc;

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

use crate::changes::change::Content;
use crate::changes::json::is_json;
use crate::publishing::wish::{Patch, Refused};

/// What a patch makes of a document, which may have so many bytes then.
pub(crate) fn patched(before: &Content, patch: &Patch, most: u64) -> Result<Content, Refused> {
    if !is_json(&before.media_type) {
        return Err(Refused::NoJson);
    }
    let mut value: Value = serde_json::from_slice(&before.body).map_err(|_| Refused::NoJson)?;
    match patch {
        Patch::Merge(_, patch) => json_patch::merge(&mut value, patch),
        Patch::Operations(operations) => operate(&mut value, operations, most)?,
    }
    let body = serde_json::to_vec(&value).map_err(|error| Refused::Unfit(error.to_string()))?;
    Ok(Content {
        media_type: Arc::clone(&before.media_type),
        body: body.into(),
    })
}

/// As deep as JSON is read: what is deeper could not be read again, and what walks through it would need more
/// stack than there is.
const MAX_DEPTH: usize = 128;

/// Takes one operation after the other. What is copied may be copied again, and what is moved may be moved into
/// what was moved: a short patch could make a document that no memory holds, or so deep that nothing can walk
/// through it. So what all of it copies is bounded, and how deep each puts something.
fn operate(value: &mut Value, operations: &[PatchOperation], most: u64) -> Result<(), Refused> {
    let mut copied = 0;
    for operation in operations {
        if let PatchOperation::Copy(copy) = operation {
            let source = copy.from.resolve(value).ok();
            copied += source.map_or(0, |source| size(source, most));
            if copied > most {
                return Err(Refused::TooLarge);
            }
        }
        let put = match operation {
            PatchOperation::Add(add) => Some((&add.path, Some(&add.value))),
            PatchOperation::Replace(replace) => Some((&replace.path, Some(&replace.value))),
            PatchOperation::Copy(copy) => Some((&copy.path, copy.from.resolve(value).ok())),
            PatchOperation::Move(moved) => Some((&moved.path, moved.from.resolve(value).ok())),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if let Some((path, what)) = put
            && path.count() + what.map_or(0, depth) > MAX_DEPTH
        {
            let why = format!("{path}: the document would be more than {MAX_DEPTH} levels deep");
            return Err(Refused::Unfit(why));
        }
        let one = std::slice::from_ref(operation);
        json_patch::patch(value, one).map_err(|error| match error.kind {
            PatchErrorKind::TestFailed => Refused::Test,
            kind => Refused::Unfit(format!("{}: {kind}", error.path)),
        })?;
    }
    Ok(())
}

/// How many levels a value has. No value here has more than [`MAX_DEPTH`] of them.
fn depth(value: &Value) -> usize {
    let deepest = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + deepest.unwrap_or(0)
}

/// How many bytes a value has at least; not more than a little over `most` is counted.
fn size(value: &Value, most: u64) -> u64 {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| {
        let mut all = 2;
        for size in sizes {
            all += size;
            if all > most {
                break;
            }
        }
        all
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(items) => sum(&mut items.iter().map(|item| size(item, most) + 1)),
        Value::Object(members) => sum(&mut members
            .iter()
            .map(|(name, member)| name.len() as u64 + 4 + size(member, most))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(body: &str) -> Content {
        Content {
            media_type: "application/json".into(),
            body: body.to_owned().into(),
        }
    }

    fn merged(before: &str, patch: &str) -> String {
        let value = serde_json::from_str(patch).expect("JSON");
        let patch = Patch::Merge(patch.to_owned().into(), value);
        let after = patched(&json(before), &patch, 1 << 20).expect("it fits");
        after.as_text().expect("text").to_owned()
    }

    fn operated(before: &str, operations: &str) -> Result<String, Refused> {
        let operations = serde_json::from_str(operations).expect("a patch");
        let after = patched(&json(before), &Patch::Operations(operations), 1 << 10)?;
        Ok(after.as_text().expect("text").to_owned())
    }

    #[test]
    fn merge_patches_do_what_the_appendix_says() {
        // RFC 7396, appendix A.
        for (before, patch, after) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged(before, patch), after, "{before} {patch}");
        }
    }

    #[test]
    fn operations_are_taken_one_after_the_other() {
        let patch = r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":2},{"op":"move","from":"/a","path":"/c"}]"#;
        assert_eq!(
            operated(r#"{"a":1}"#, patch).as_deref(),
            Ok(r#"{"b":2,"c":1}"#)
        );
        assert_eq!(operated(r#"{"a":2}"#, patch), Err(Refused::Test));
        let unfit = operated("{}", r#"[{"op":"remove","path":"/x"}]"#);
        assert!(matches!(unfit, Err(Refused::Unfit(_))), "{unfit:?}");
    }

    /// The public suite of cases, see its own README.
    #[test]
    fn the_public_suite_holds() {
        let suites = [
            include_str!("../../tests/json-patch-tests/tests.json"),
            include_str!("../../tests/json-patch-tests/spec_tests.json"),
        ];
        let mut cases = 0;
        for suite in suites {
            let suite: Vec<Value> = serde_json::from_str(suite).expect("JSON");
            for case in suite.iter().filter(|case| case.get("patch").is_some()) {
                if case["disabled"] == true {
                    continue;
                }
                cases += 1;
                let before = json(&case["doc"].to_string());
                // What is no patch is refused before it is applied.
                let after = serde_json::from_value(case["patch"].clone())
                    .map_err(|error| error.to_string())
                    .and_then(|operations| {
                        let patched = patched(&before, &Patch::Operations(operations), 1 << 20);
                        patched.map_err(|refused| refused.to_string())
                    });
                if let Some(expected) = case.get("expected") {
                    let after = after.unwrap_or_else(|why| panic!("{why}: {case:#}"));
                    let after: Value = serde_json::from_slice(&after.body).expect("JSON");
                    assert_eq!(after, *expected, "{case:#}");
                } else if case.get("error").is_some() {
                    assert!(after.is_err(), "{case:#}");
                }
            }
        }
        assert!(cases > 100, "{cases}");
    }

    #[test]
    fn copies_of_copies_are_bounded() {
        let double = r#"{"op":"copy","from":"/a","path":"/a/-"}"#;
        let patch = format!("[{}]", [double; 64].join(","));
        assert_eq!(operated(r#"{"a":["x"]}"#, &patch), Err(Refused::TooLarge));
    }

    #[test]
    fn what_is_moved_into_what_was_moved_does_not_get_deeper_than_can_be_read() {
        let nest = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let inside = "/0".repeat(100);
        let round = format!(
            r#"{{"op":"add","path":"/y","value":{nest}}},{{"op":"move","from":"/x","path":"/y{inside}"}},{{"op":"move","from":"/y","path":"/x"}}"#
        );
        let patch = format!("[{}]", vec![round; 500].join(","));
        let before = r#"{"x":[]}"#;
        let operations = serde_json::from_str(&patch).expect("a patch");
        let refused = patched(&json(before), &Patch::Operations(operations), 1 << 20);
        assert!(matches!(refused, Err(Refused::Unfit(why)) if why.contains("levels")));
    }

    #[test]
    fn what_is_no_json_cannot_be_patched() {
        let text = Content {
            media_type: "text/plain".into(),
            body: "{}".into(),
        };
        let patch = Patch::Operations(Vec::new());
        assert_eq!(patched(&text, &patch, 10), Err(Refused::NoJson));
    }
}
