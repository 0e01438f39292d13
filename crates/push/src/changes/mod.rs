//! Changes: their numbers, and their encodings for the log and for subscribers.

pub(crate) mod change;
pub(crate) mod change_numbers;
pub(crate) mod encodings;
pub(crate) mod events;
pub(crate) mod generations;
pub(crate) mod journal;
pub(crate) mod json;
pub(crate) mod log_directory;
pub(crate) mod records;
pub(crate) mod version;
