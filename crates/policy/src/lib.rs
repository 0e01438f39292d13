//! The rules of HTTP caching, RFC 9111 and related specifications, as pure functions: fields and the time in, a verdict
//! out.
//!
//! Nothing here reads a clock, does I/O, or allocates on the path of a hit.

pub mod accept;
pub mod anonymous;
pub mod browser_cache;
pub mod byte_range;
pub mod coding;
pub mod compression;
pub mod cookies;
pub mod date;
pub mod detail;
pub mod dictionaries;
pub mod early_hints;
pub mod edge;
pub mod etag;
pub mod explain;
pub mod field_block;
pub mod field_edits;
pub mod field_index;
pub mod field_name;
pub mod field_template;
pub mod fields;
pub mod form_tokens;
pub mod forwarded_response;
pub mod glob;
pub mod hop;
pub mod identity;
pub mod impersonal;
pub mod indexed_block;
pub mod invalidate;
pub mod key;
pub mod known_name;
pub mod lifetime;
pub mod max_forwards;
pub mod name_set;
pub mod network;
pub mod no_vary_search;
pub mod origin_view;
pub mod patterns;
pub mod percent;
pub mod precondition;
pub mod prefetch;
pub mod query;
pub mod range;
pub mod readings;
pub mod request;
pub mod request_fields;
pub mod response;
pub mod reuse;
pub mod rules;
pub mod sharing;
pub mod sign_in;
pub mod status;
pub mod storable;
pub mod stored_fields;
pub mod syntax;
pub mod tags;
pub mod time;
pub mod trace;
pub mod tracking;
pub mod trust;
pub mod upgrade;
pub mod url_template;
pub mod validate;
pub mod vary;

mod compact_lifetime;
mod directives;
mod encoding;
mod freshness;
mod reference;
mod targeted;
mod text_table;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod private_cache;
#[cfg(test)]
mod safe_rules;
#[cfg(test)]
mod testing;

pub use accept::AcceptClass;
pub use compact_lifetime::CompactLifetime;
pub use compression::{
    AcceptedCodings, Coding, Compress, NotCompressed, NotCompressible, SentCoding,
};
pub use detail::Detail;
pub use dictionaries::DictionaryCoding;
pub use explain::{Explanation, LifetimeSource, ResponseExplanation, StaleWindowSource};
pub use field_block::FieldBlock;
pub use field_index::FieldIndex;
pub use field_name::FieldName;
pub use fields::{FieldLine, Fields, FieldsBuf};
pub use form_tokens::{FormTokenScan, has_form_token};
pub use forwarded_response::{ContentKind, ForwardedResponse};
pub use freshness::stated_lifetime;
pub use hop::{end_to_end, takes_trailers};
pub use identity::{identities, is_identity};
pub use indexed_block::IndexedBlock;
pub use invalidate::{invalidates, locations};
pub use key::{KeyBuf, Scheme};
pub use known_name::{KnownName, LineStart, names};
pub use lifetime::Lifetime;
pub use max_forwards::{MaxForwards, max_forwards};
pub use name_set::NameSet;
pub use network::Network;
pub use no_vary_search::NoVarySearch;
pub use origin_view::{OriginView, goes_with_fill};
pub use patterns::{FieldPatterns, Patterns};
pub use precondition::{Precondition, not_modified_keeps, precondition};
pub use range::{RangeVerdict, range};
pub use request::{
    Credentials, Handling, PassReason, RequestFacts, USER_CONTEXT, is_event_stream, is_grpc,
    is_user_context,
};
pub use request_fields::{
    OmittedFields, SharedForwarding, SharedRequest, is_common, shared_forwarding, withheld_names,
};
pub use response::ResponseFacts;
pub use reuse::{
    Reuse, RevalidationReason, in_use_until, is_origin_failure, is_refusal, on_error, reuse,
};
pub use rules::{
    CacheKind, CookiePatterns, KeyRules, Query, Reload, RequestRules, Rules, SetCookie, TagField,
};
pub use sharing::Seal;
pub use sign_in::signs_in;
pub use status::{CacheStatus, Forward};
pub use storable::{NotStorable, Storable, storable};
pub use stored_fields::fields_to_store;
pub use tags::{Separator, Tag, TagKind, Tags, invalidated_groups, take_long_tags};
pub use targeted::SURROGATE_CONTROL;
pub use time::{Millis, Time, Times};
pub use trace::{Span, TraceParent, is_trace_field, trace_parent, trace_travels};
pub use trust::{
    FieldForwarding, field_forwarding, is_address, is_believed, only_from_trusted_peers,
    says_https, visitor_used_tls,
};
pub use validate::{
    HeadUpdate, Refreshed, add_validators, head_update, is_conditional_field,
    is_conditional_or_partial, refreshed, same_representation,
};
pub use vary::{Codings, ObservedCodings, Selection, Vary, VaryNames};
