//! One request's way through the engine, as a connection takes it.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::{Engine, ForwardedRequest, Frame, Response, Served};
use microcache_policy::{Fields, FieldsBuf};

use crate::support;

pub(crate) const HOST: &str = "a.example";

/// A request to that host, with these field lines.
pub(crate) fn incoming(method: &Method, target: &str, fields: &str) -> ForwardedRequest {
    let target = Bytes::copy_from_slice(target.as_bytes());
    support::incoming(method.clone(), HOST, target, fields_of(fields))
}

/// Field lines, separated by CRLF.
pub(crate) fn fields_of(lines: &str) -> FieldsBuf {
    let mut block = lines.as_bytes().to_vec();
    if !block.is_empty() {
        block.extend_from_slice(b"\r\n");
    }
    FieldsBuf::from(Fields::new(&block))
}

/// The response to a request. A refresh is started as a connection would.
pub(crate) async fn ask(
    engine: &Arc<Engine>,
    method: &Method,
    target: &str,
    fields: &str,
) -> Response {
    let requested = incoming(method, target, fields);
    match engine.serve(&requested.as_request(), engine.clock.now()) {
        Served::Now(response) => response,
        Served::NowAndRefresh(response, refresh) => {
            engine.refresh(refresh, incoming(method, target, fields));
            response
        }
        Served::Fetch(plan) => {
            let answer = Arc::clone(engine).ask(plan, requested).await;
            answer.expect("there is a response")
        }
        Served::Failed(failed) => panic!("{failed:?}"),
    }
}

/// A whole body.
pub(crate) async fn read(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(frame) = response.body.frame().await {
        if let Frame::Data(data) = frame.expect("it does not break off") {
            body.extend_from_slice(&data);
        }
    }
    body
}
