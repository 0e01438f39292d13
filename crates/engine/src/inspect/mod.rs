//! Questions about a request that change nothing: the decisions it would meet, the response it would
//! get, the variants it selects.

mod explain;
mod peek;
mod variants;

pub use explain::{Compressed, Decision, Explained, ExplainedVariant};
pub use peek::Peek;
