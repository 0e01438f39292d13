//! Pages with tags are divided once, when they are stored: after a fetch, and when a tier's entry moves into memory.

use std::sync::Arc;

use microcache_policy::Rules;
use microcache_policy::edge::PagePieces;
use microcache_store::Stored;

/// Returns a response with the pieces of its page, if its tags are to be replaced. A body in a file has none: it is divided
/// while it is sent.
pub(crate) fn divided(stored: Stored, rules: &Rules) -> Stored {
    if !rules.edge.covers(stored.fields()) {
        return stored;
    }
    let pieces = match stored.body() {
        Some(body) => PagePieces::of(body),
        None => Some(PagePieces::default()),
    };
    stored.with_pieces(pieces.map(Arc::new))
}

/// Returns a response with the pieces of an earlier one that has the same body.
pub(crate) fn divided_as(before: &Stored, stored: Stored, rules: &Rules) -> Stored {
    match before.pieces() {
        Some(pieces) if rules.edge.covers(stored.fields()) => {
            stored.with_pieces(Some(Arc::clone(pieces)))
        }
        _ => divided(stored, rules),
    }
}
