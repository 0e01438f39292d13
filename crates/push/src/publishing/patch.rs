//! Patches of JSON documents.

use std::sync::Arc;

use bytes::Bytes;

use super::operations::{MAX_DEPTH, Operation, apply_operations};
use super::tree::{JsonObject, JsonTree, depth};
use crate::changes::change::DocumentContent;
use crate::changes::json::is_json;
use crate::publishing::write_error::WriteError;

/// A patch.
#[derive(Debug)]
pub(crate) enum Patch {
    /// A merge patch (RFC 7396), as it was sent.
    Merge(Bytes),
    /// JSON Patch operations (RFC 6902).
    Operations(Vec<Operation>),
}

impl Patch {
    /// Parses a merge patch.
    pub(crate) fn merge(sent: Bytes) -> Result<Self, String> {
        match JsonTree::read(&sent) {
            Ok(JsonTree::Text(text)) if depth(text) > MAX_DEPTH => {
                Err(format!("it is more than {MAX_DEPTH} levels deep"))
            }
            Ok(_) => Ok(Self::Merge(sent)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Parses JSON Patch operations.
    pub(crate) fn operations(sent: &[u8]) -> Result<Self, String> {
        let operations = serde_json::from_slice(sent).map_err(|error| error.to_string())?;
        Ok(Self::Operations(operations))
    }

    /// Returns the merge patch, if it is one.
    pub(crate) const fn merged(&self) -> Option<&Bytes> {
        match self {
            Self::Merge(sent) => Some(sent),
            Self::Operations(_) => None,
        }
    }
}

/// Applies a patch; the copies of a JSON Patch are limited to `most` bytes.
pub(crate) fn apply_patch(
    before: &DocumentContent,
    patch: &Patch,
    most: u64,
) -> Result<DocumentContent, WriteError> {
    if !is_json(&before.media_type) {
        return Err(WriteError::NotJson);
    }
    let mut document = JsonTree::read(&before.body).map_err(|_| WriteError::NotJson)?;
    match patch {
        Patch::Merge(sent) => {
            let merged = JsonTree::read(sent).and_then(|patch| merge(Some(document), patch));
            document = merged.map_err(|_| WriteError::NotJson)?;
        }
        Patch::Operations(operations) => apply_operations(&mut document, operations, most)?,
    }
    let mut body = String::new();
    document.write(&mut body);
    Ok(DocumentContent {
        media_type: Arc::clone(&before.media_type),
        body: body.into(),
    })
}

/// Applies a merge patch to a value, or to nothing (RFC 7396 §2).
fn merge<'a>(
    before: Option<JsonTree<'a>>,
    mut patch: JsonTree<'a>,
) -> serde_json::Result<JsonTree<'a>> {
    patch.open()?;
    let JsonTree::Object(patch) = patch else {
        return Ok(patch);
    };
    let mut before = before.unwrap_or(JsonTree::Text("{}"));
    before.open()?;
    let mut merged = match before {
        JsonTree::Object(object) => object,
        JsonTree::Text(_) | JsonTree::Array(_) => JsonObject::default(),
    };
    for (name, mut member) in patch.into_members() {
        let value = std::mem::replace(&mut member.value, JsonTree::Text("null"));
        if value.is_null() {
            merged.remove(&name);
        } else if let Some(there) = merged.get_mut(&name) {
            let before = std::mem::replace(there, JsonTree::Text("null"));
            *there = merge(Some(before), value)?;
        } else {
            merged.set(name, member.with(merge(None, value)?));
        }
    }
    Ok(JsonTree::Object(merged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn json(body: &str) -> DocumentContent {
        DocumentContent {
            media_type: "application/json".into(),
            body: body.to_owned().into(),
        }
    }

    fn merged(before: &str, patch: &str) -> String {
        let patch = Patch::merge(patch.to_owned().into()).expect("a patch");
        let after = apply_patch(&json(before), &patch, 1 << 20).expect("it fits");
        after.as_text().expect("text").to_owned()
    }

    fn operated(before: &str, operations: &str) -> Result<String, WriteError> {
        let patch = Patch::operations(operations.as_bytes()).expect("a patch");
        let after = apply_patch(&json(before), &patch, 1 << 10)?;
        Ok(after.as_text().expect("text").to_owned())
    }

    #[test]
    fn merge_patches_match_the_appendix_of_the_rfc() {
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
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
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
        assert_eq!(operated(r#"{"a":2}"#, patch), Err(WriteError::TestFailed));
        let unfit = operated("{}", r#"[{"op":"remove","path":"/x"}]"#);
        assert!(
            matches!(unfit, Err(WriteError::InvalidPatch(_))),
            "{unfit:?}"
        );
    }

    /// Prices have more digits than a float, and clients compare texts.
    #[test]
    fn members_not_named_by_a_patch_stay_byte_for_byte() {
        let before = r#"{"z":79228162514264337593543950335.0001,"price":1.10,"e":1E+2,"t":"\u00e9\/","o":{ "y": 1.0, "x": [ 2 ] },"a":1}"#;
        let after = before.replace(r#""a":1}"#, r#""a":2.50,"new":{"p":1.10}}"#);
        let patch = r#"{"a": 2.50, "new": {"p":1.10,"gone":null}, "missing": null}"#;
        assert_eq!(merged(before, patch), after);
        let patch = r#"[{"op":"replace","path":"/a","value":2.50},{"op":"add","path":"/new","value":{"p":1.10}},
            {"op":"test","path":"/price","value":1.1},{"op":"test","path":"/o","value":{"x":[2],"y":1}}]"#;
        assert_eq!(operated(before, patch), Ok(after));
        let patch = r#"[{"op":"test","path":"/z","value":79228162514264337593543950335.0002}]"#;
        assert_eq!(operated(before, patch), Err(WriteError::TestFailed));
        assert_eq!(
            merged(before, r#"{"o":{"x":null}}"#),
            before.replace(r#"{ "y": 1.0, "x": [ 2 ] }"#, r#"{"y":1.0}"#)
        );
    }

    #[test]
    fn many_members_are_no_more_than_so_many() {
        let all = |value: usize| {
            let members: Vec<_> = (0..50_000).map(|it| format!("\"m{it}\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(merged(&all(1), &all(2)), all(2));
        let nulls = all(1).replace(":1", ":null");
        assert_eq!(merged(&all(1), &nulls), "{}");
    }

    #[test]
    fn a_patch_that_is_too_deep_is_refused_when_it_is_read() {
        let deep = format!("{}1{}", "{\"a\":".repeat(129), "}".repeat(129));
        assert!(Patch::merge(deep.clone().into()).is_err());
        let add = format!(r#"[{{"op":"add","path":"/a","value":{deep}}}]"#);
        assert!(Patch::operations(add.as_bytes()).is_err());
    }

    /// The public test suite; see its README.
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
                // Malformed patches are rejected by the parser.
                let sent = case["patch"].to_string();
                let after = Patch::operations(sent.as_bytes()).and_then(|patch| {
                    let apply_patch = apply_patch(&before, &patch, 1 << 20);
                    apply_patch.map_err(|refused| refused.to_string())
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
        assert_eq!(
            operated(r#"{"a":["x"]}"#, &patch),
            Err(WriteError::TooLarge)
        );
    }

    #[test]
    fn nested_moves_do_not_exceed_the_depth_limit() {
        let nest = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let inside = "/0".repeat(100);
        let round = format!(
            r#"{{"op":"add","path":"/y","value":{nest}}},{{"op":"move","from":"/x","path":"/y{inside}"}},{{"op":"move","from":"/y","path":"/x"}}"#
        );
        let patch = format!("[{}]", vec![round; 500].join(","));
        let before = r#"{"x":[]}"#;
        let patch = Patch::operations(patch.as_bytes()).expect("a patch");
        let refused = apply_patch(&json(before), &patch, 1 << 20);
        assert!(matches!(refused, Err(WriteError::InvalidPatch(why)) if why.contains("levels")));
    }

    #[test]
    fn invalid_json_cannot_be_patched() {
        let text = DocumentContent {
            media_type: "text/plain".into(),
            body: "{}".into(),
        };
        let patch = Patch::Operations(Vec::new());
        assert_eq!(apply_patch(&text, &patch, 10), Err(WriteError::NotJson));
    }
}
