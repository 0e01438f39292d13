//! `GET` and `POST /v1/explain`, and `microcache explain`: what is said is held against what is done.

mod command;
mod reasons;
mod table;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::operators::Operator;

/// What is said of a request for a page of `example.com`.
fn explain(admin: SocketAddr, target: &str, more: &Value) -> Value {
    let mut requested = json!({"url": format!("http://example.com{target}")});
    for (name, value) in more.as_object().expect("an object") {
        requested[name] = value.clone();
    }
    Operator::at(admin).post("/v1/explain", &requested)
}

/// A parameter of our member of `Cache-Status`; `?1` for one without a value.
fn parameter<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.split("; ").skip(1).find_map(|one| {
        let (key, value) = one.split_once('=').unwrap_or((one, "?1"));
        (key == name).then_some(value)
    })
}
