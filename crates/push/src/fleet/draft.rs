//! The arguments of `change.lua`.

use std::sync::Arc;

use super::record;
use crate::changes::change::{Change, Content, Delta};
use crate::changes::version::Version;
use crate::documents::Documents;
use crate::publishing::patch::Patch;
use crate::publishing::patch::patched;
use crate::publishing::wish::{Deed, Refused, Wish};

/// An argument of a script.
pub(super) type Argument = Vec<u8>;

/// A write request as arguments of `change.lua`.
pub(super) struct Drafted {
    pub(super) arguments: [Argument; 9],
    /// The local error, to be returned if this node's copy turns out to be current.
    pub(super) fault: Option<Refused>,
}

/// The arguments being built.
struct Drafting {
    change: Change,
    kind: &'static str,
    /// The version that a patch was applied to.
    base: String,
    lives: String,
    fault: Option<Refused>,
}

/// Builds the arguments. Patches are applied on this node.
pub(super) fn draft(documents: &Documents, wish: &Wish) -> Result<Drafted, Refused> {
    let most = documents.settings.max_document;
    let (kind, lives) = match &wish.deed {
        Deed::Delete => ("delete", "0".to_owned()),
        Deed::Put(content, _) if content.body.len() as u64 > most => return Err(Refused::TooLarge),
        Deed::Put(_, None) => ("put", "0".to_owned()),
        Deed::Put(_, Some(ttl)) => ("put", ttl.to_string()),
        Deed::Patch(_) => ("check", "keep".to_owned()),
    };
    let mut drafting = Drafting {
        change: Change {
            number: 0,
            name: Arc::clone(&wish.name),
            content: None,
            expires: None,
            delta: None,
        },
        kind,
        base: String::new(),
        lives,
        fault: None,
    };
    match &wish.deed {
        Deed::Delete => {}
        Deed::Put(content, _) => drafting.change.content = Some(content.clone()),
        Deed::Patch(patch) => drafting.patch(documents, patch, most),
    }
    Ok(drafting.finish(wish))
}

/// Returns this node's copy of a document.
fn here(documents: &Documents, name: &str) -> Option<(Version, Content)> {
    let books = documents.books.lock();
    let now = books.now(name)?;
    let version = books.generations.version(now.number);
    now.content.clone().map(|content| (version, content))
}

impl Drafting {
    fn patch(&mut self, documents: &Documents, patch: &Patch, most: u64) {
        let Some((version, before)) = here(documents, &self.change.name) else {
            // The document is not here. A version that matches none lets Redis decide whether it exists.
            self.base.push(' ');
            return;
        };
        self.base = version.to_string();
        match patched(&before, patch, most) {
            Ok(content) if content.body.len() as u64 > most => {
                self.fault = Some(Refused::TooLarge);
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
            Err(why) => self.fault = Some(why),
        }
    }

    fn finish(self, wish: &Wish) -> Drafted {
        let (only, never) = wish.condition.written();
        let content = self.change.content.as_ref();
        let words = [
            self.change.name.to_string(),
            self.kind.to_owned(),
            self.base,
            only,
            never,
            self.lives,
            self.change.size().to_string(),
        ];
        let [name, kind, base, only, never, lives, size] = words.map(String::into_bytes);
        let content = content.map(record::content).unwrap_or_default();
        let patch = record::difference(self.change.delta.as_ref());
        Drafted {
            arguments: [name, kind, base, only, never, lives, size, content, patch],
            fault: self.fault,
        }
    }
}
