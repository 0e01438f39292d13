//! The origin's side: groups of servers, what is asked of them, and how much at a time.

pub mod settings;
