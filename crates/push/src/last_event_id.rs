//! The last event id of a request: the position after which a reconnecting client resumes (HTML Living
//! Standard §9.2.4).

use microcache_policy::Fields;

/// Returns the `Last-Event-ID` field, which a reconnecting `EventSource` sends. It is newer than an id in the
/// URL, which stays the same on every reconnect.
pub(crate) fn from_fields(fields: Fields<'_>) -> Option<String> {
    let value = fields.get("last-event-id")?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns whether a query parameter carries the id, for clients that cannot set the field.
pub(crate) fn is_parameter(name: &str) -> bool {
    matches!(name, "last_event_id" | "lastEventID")
}
