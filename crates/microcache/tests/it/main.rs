//! Black-box tests: the real binary between a scripted origin and a raw client.

mod adversary;
mod bad_days;
mod bad_origin;
mod chaos;
mod collapse;
mod connections;
mod log;
mod log_access;
mod log_files;
mod lone;
mod loops;
mod memory;
mod operators;
mod passing;
mod refusals;
mod routes;
mod safe_rules;
mod semantics;
mod signed_in;
mod stale;
mod strict_http;
mod support;
mod tiers;
mod uploads;
mod upstream;
mod variants;
