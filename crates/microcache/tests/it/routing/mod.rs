//! Routes that answer themselves, and routes that change what the origin is asked for.

mod answers;
mod files;
mod operators;
mod rewrites;
