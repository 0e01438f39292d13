//! The arguments of `change.lua`.

use std::sync::Arc;

use super::record;
use crate::changes::change::{Delta, DocumentChange, DocumentContent};
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;
use crate::publishing::patch::Patch;
use crate::publishing::patch::apply_patch;
use crate::publishing::write_error::WriteError;
use crate::publishing::write_request::{WriteOp, WriteRequest};

/// An argument of a script.
pub(super) type ScriptArgument = Vec<u8>;

/// A write request as arguments of `change.lua`.
pub(super) struct ScriptCall {
    pub(super) arguments: [ScriptArgument; 9],
    /// The local error, to be returned if this node's copy turns out to be current.
    pub(super) local_error: Option<WriteError>,
}

/// The arguments being built.
struct ScriptCallBuilder {
    change: DocumentChange,
    kind: &'static str,
    /// The version that a patch was applied to.
    base: String,
    lifetime: String,
    local_error: Option<WriteError>,
}

/// Builds the arguments. Patches are applied on this node.
pub(super) fn script_call(
    documents: &Documents,
    write: &WriteRequest,
) -> Result<ScriptCall, WriteError> {
    let most = documents.settings.max_document;
    let (kind, lifetime) = match &write.op {
        WriteOp::Delete => ("delete", "0".to_owned()),
        WriteOp::Put(content, _) if content.body.len() as u64 > most => {
            return Err(WriteError::TooLarge);
        }
        WriteOp::Put(_, None) => ("put", "0".to_owned()),
        WriteOp::Put(_, Some(ttl)) => ("put", ttl.to_string()),
        WriteOp::Patch(_) => ("check", "keep".to_owned()),
    };
    let mut call = ScriptCallBuilder {
        change: DocumentChange {
            number: 0,
            name: Arc::clone(&write.name),
            content: None,
            expires: None,
            delta: None,
        },
        kind,
        base: String::new(),
        lifetime,
        local_error: None,
    };
    match &write.op {
        WriteOp::Delete => {}
        WriteOp::Put(content, _) => call.change.content = Some(content.clone()),
        WriteOp::Patch(patch) => call.patch(documents, patch, most),
    }
    Ok(call.build(write))
}

/// Returns this node's copy of a document.
fn local_copy(documents: &Documents, name: &str) -> Option<(DocumentVersion, DocumentContent)> {
    let index = documents.index.lock();
    let now = index.current(name)?;
    let version = index.generations.version(now.number);
    now.content.clone().map(|content| (version, content))
}

impl ScriptCallBuilder {
    fn patch(&mut self, documents: &Documents, patch: &Patch, most: u64) {
        let Some((version, before)) = local_copy(documents, &self.change.name) else {
            // The document is not here. A version that matches none lets Redis decide whether it exists.
            self.base.push(' ');
            return;
        };
        self.base = version.to_string();
        match apply_patch(&before, patch, most) {
            Ok(content) if content.body.len() as u64 > most => {
                self.local_error = Some(WriteError::TooLarge);
            }
            Ok(content) => {
                self.kind = "patch";
                let sent = patch
                    .merged()
                    .filter(|sent| sent.len() < content.body.len());
                self.change.delta = sent.map(|sent| Delta {
                    from: version.number,
                    patch: sent.clone(),
                });
                self.change.content = Some(content);
            }
            // Redis checks whether this node's copy is current.
            Err(why) => self.local_error = Some(why),
        }
    }

    fn build(self, write: &WriteRequest) -> ScriptCall {
        let (if_match, if_none_match) = write.condition.script_arguments();
        let content = self.change.content.as_ref();
        let words = [
            self.change.name.to_string(),
            self.kind.to_owned(),
            self.base,
            if_match,
            if_none_match,
            self.lifetime,
            self.change.size().to_string(),
        ];
        let [name, kind, base, if_match, if_none_match, lifetime, size] =
            words.map(String::into_bytes);
        let content = content.map(record::content).unwrap_or_default();
        let patch = record::difference(self.change.delta.as_ref());
        ScriptCall {
            arguments: [
                name,
                kind,
                base,
                if_match,
                if_none_match,
                lifetime,
                size,
                content,
                patch,
            ],
            local_error: self.local_error,
        }
    }
}
