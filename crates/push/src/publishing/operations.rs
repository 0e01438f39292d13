//! JSON Patch (RFC 6902).

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::equal::is_equal;
use super::tree::{JsonMember, JsonTree, depth};
use crate::publishing::write_error::WriteError;

/// Limit of nesting of a document: processing is recursive.
pub(super) const MAX_DEPTH: usize = 128;

/// One operation of a patch.
#[derive(Debug, Deserialize)]
#[serde(try_from = "OperationJson")]
pub(crate) struct Operation {
    path: Pointer,
    op: PatchOp,
}

#[derive(Debug)]
enum PatchOp {
    Add(Box<RawValue>),
    Remove,
    Replace(Box<RawValue>),
    Move(Pointer),
    Copy(Pointer),
    Test(Box<RawValue>),
}

/// An operation as it is sent.
#[derive(Deserialize)]
struct OperationJson {
    op: String,
    path: String,
    from: Option<String>,
    #[serde(default, deserialize_with = "even_null")]
    value: Option<Box<RawValue>>,
}

fn even_null<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(value).map(Some)
}

impl TryFrom<OperationJson> for Operation {
    type Error = String;

    fn try_from(json: OperationJson) -> Result<Self, String> {
        let value = || {
            json.value
                .ok_or_else(|| format!("{} has no value", json.op))
        };
        let from = json.from.as_deref();
        let from = || Pointer::read(from.ok_or_else(|| format!("{} has no from", json.op))?);
        let op = match &*json.op {
            "add" => PatchOp::Add(value()?),
            "remove" => PatchOp::Remove,
            "replace" => PatchOp::Replace(value()?),
            "move" => PatchOp::Move(from()?),
            "copy" => PatchOp::Copy(from()?),
            "test" => PatchOp::Test(value()?),
            other => return Err(format!("unknown operation {other}")),
        };
        if let PatchOp::Add(value) | PatchOp::Replace(value) | PatchOp::Test(value) = &op
            && depth(value.get()) > MAX_DEPTH
        {
            return Err(format!("a value is more than {MAX_DEPTH} levels deep"));
        }
        let path = Pointer::read(&json.path)?;
        Ok(Self { path, op })
    }
}

/// A JSON Pointer (RFC 6901), as unescaped tokens.
#[derive(Debug, PartialEq, Eq)]
struct Pointer(Vec<String>);

impl Pointer {
    fn read(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Ok(Self(Vec::new()))
            } else {
                Err(format!("{text} does not begin with a slash"))
            };
        };
        let is_whole = |token: &str| {
            let mut after = token.split('~').skip(1);
            after.all(|it| it.starts_with(['0', '1']))
        };
        let tokens = rest.split('/').map(|token| {
            let token = is_whole(token).then(|| token.replace("~1", "/").replace("~0", "~"));
            token.ok_or_else(|| format!("{text} contains ~ other than in ~0 and ~1"))
        });
        tokens.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the tokens of the parent and the last token; `None` for the whole document.
    fn split(&self) -> Option<(&[String], &str)> {
        let (last, parent) = self.0.split_last()?;
        Some((parent, last))
    }

    fn is_above(&self, other: &Self) -> bool {
        self.0.len() < other.0.len() && other.0.starts_with(&self.0)
    }

    /// Returns the error for a pointer to nothing.
    fn refused(&self) -> WriteError {
        WriteError::InvalidPatch(format!("{self}: no such value"))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.0 {
            write!(f, "/{}", token.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// Applies operations in order. Copies of copies could make a document that fits in no memory, and repeated
/// moves one too deep to process, so the total size of copies and the depth of every result are limited.
pub(super) fn apply_operations<'a>(
    document: &mut JsonTree<'a>,
    operations: &'a [Operation],
    most: u64,
) -> Result<(), WriteError> {
    let mut copied = 0;
    for Operation { path, op } in operations {
        match op {
            PatchOp::Add(value) => add(document, path, JsonTree::Text(value.get()))?,
            PatchOp::Remove => drop(remove(document, path)?),
            PatchOp::Replace(value) => {
                let new = JsonTree::Text(value.get());
                has_room(path, &new)?;
                *find(document, path)? = new;
            }
            PatchOp::Move(from) if from.is_above(path) => {
                let why = format!("{path}: a value cannot be moved into itself");
                return Err(WriteError::InvalidPatch(why));
            }
            PatchOp::Move(from) => {
                let moved = remove(document, from)?;
                add(document, path, moved)?;
            }
            PatchOp::Copy(from) => {
                let source = find(document, from)?;
                copied += source.size() as u64;
                if copied > most {
                    return Err(WriteError::TooLarge);
                }
                let copy = source.clone();
                add(document, path, copy)?;
            }
            PatchOp::Test(value) => {
                let mut there = String::new();
                find(document, path)?.write(&mut there);
                if !is_equal(&there, value.get()).map_err(unreadable)? {
                    return Err(WriteError::TestFailed);
                }
            }
        }
    }
    Ok(())
}

fn has_room(path: &Pointer, value: &JsonTree<'_>) -> Result<(), WriteError> {
    if path.0.len() + value.depth() > MAX_DEPTH {
        let why = format!("{path}: the document would be more than {MAX_DEPTH} levels deep");
        return Err(WriteError::InvalidPatch(why));
    }
    Ok(())
}

fn add<'a>(
    document: &mut JsonTree<'a>,
    path: &'a Pointer,
    value: JsonTree<'a>,
) -> Result<(), WriteError> {
    has_room(path, &value)?;
    let Some((parent, last)) = path.split() else {
        *document = value;
        return Ok(());
    };
    match parent_of(document, parent)? {
        Some(JsonTree::Object(object)) => {
            object.set(Cow::Borrowed(last), JsonMember::new(last, value));
        }
        Some(JsonTree::Array(items)) => {
            let at = if last == "-" {
                Some(items.len())
            } else {
                index(last)
            };
            let at = at.filter(|at| *at <= items.len());
            items.insert(at.ok_or_else(|| path.refused())?, value);
        }
        _ => return Err(path.refused()),
    }
    Ok(())
}

fn remove<'a>(document: &mut JsonTree<'a>, path: &Pointer) -> Result<JsonTree<'a>, WriteError> {
    let (parent, last) = path.split().ok_or_else(|| path.refused())?;
    let removed = match parent_of(document, parent)? {
        Some(JsonTree::Object(object)) => object.remove(last),
        Some(JsonTree::Array(items)) => {
            let at = index(last).filter(|at| *at < items.len());
            at.map(|at| items.remove(at))
        }
        _ => None,
    };
    removed.ok_or_else(|| path.refused())
}

fn find<'t, 'a>(
    document: &'t mut JsonTree<'a>,
    path: &Pointer,
) -> Result<&'t mut JsonTree<'a>, WriteError> {
    let found = walk(document, &path.0).map_err(unreadable)?;
    found.ok_or_else(|| path.refused())
}

/// Finds the parent and parses its members or items.
fn parent_of<'t, 'a>(
    document: &'t mut JsonTree<'a>,
    tokens: &[String],
) -> Result<Option<&'t mut JsonTree<'a>>, WriteError> {
    let mut found = walk(document, tokens).map_err(unreadable)?;
    if let Some(parent) = &mut found {
        parent.open().map_err(unreadable)?;
    }
    Ok(found)
}

/// Finds the value of a path.
fn walk<'t, 'a>(
    mut tree: &'t mut JsonTree<'a>,
    tokens: &[String],
) -> serde_json::Result<Option<&'t mut JsonTree<'a>>> {
    for token in tokens {
        tree.open()?;
        let next = match tree {
            JsonTree::Object(object) => object.get_mut(token),
            JsonTree::Array(items) => index(token).and_then(|at| items.get_mut(at)),
            JsonTree::Text(_) => None,
        };
        let Some(next) = next else {
            return Ok(None);
        };
        tree = next;
    }
    Ok(Some(tree))
}

/// Parses an array index: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let is_index = token.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = token == "0" || !token.starts_with('0');
    (is_index && is_plain).then(|| token.parse().ok())?
}

/// Maps invalid strings within the document.
fn unreadable(_: serde_json::Error) -> WriteError {
    WriteError::NotJson
}
