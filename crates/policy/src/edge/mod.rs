//! Edge side includes: the tags of a page, and the fragments that they ask for.
//!
//! ESI's `<esi:include>`, `<esi:remove>`, `<esi:comment>` and `<!--esi … -->`, and of SSI `<!--# include -->` and
//! `<!--# block -->`. There are no variables, functions and conditions: a page may contain text of strangers. Start at
//! [`PagePieces`], which divides a page; [`Cutter`] finds the tags. An origin announces them ([`announces_tags`]),
//! [`EdgeMode`] decides where they count, and [`FragmentPaths`] which fragments are fetched, by a
//! [`fragment_request`] of the same visitor. A composed page has the [`ComposedLifetime`] of all its parts.

mod attributes;
mod composed_lifetime;
mod composed_tag;
mod cutter;
mod entities;
mod fragment_paths;
mod fragment_request;
mod include;
mod mode;
mod pieces;
mod server_side;
mod surrogate;
mod tag;

pub use composed_lifetime::ComposedLifetime;
pub use composed_tag::{ComposedTag, text_digest};
pub use cutter::{Cut, Cutter, LONGEST_TAG};
pub use fragment_paths::{FragmentPaths, FragmentRefusal};
pub use fragment_request::fragment_request;
pub use include::Include;
pub use mode::{EdgeMode, media_type};
pub use pieces::{MOST_FRAGMENTS, PagePiece, PagePieces};
pub use surrogate::{CAPABILITY, CAPABILITY_FIELD, announces_tags, remove_announcement};
