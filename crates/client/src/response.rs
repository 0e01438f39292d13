//! Conversion of the engine's response to the caller's.

use http::header::{AGE, CONTENT_LENGTH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use microcache_engine::{Body as EngineBody, Response as EngineResponse};

use crate::body::CacheBody;
use crate::fields::to_map;
use crate::info::CacheInfo;

/// The response for the caller.
pub(crate) fn to_http<R>(answer: EngineResponse) -> Response<CacheBody<R>> {
    let mut headers = match (&answer.fields, &answer.body) {
        (Some(fields), _) => to_map(fields),
        (None, EngineBody::Stored(hit)) => to_map(&hit.fields().into()),
        (None, _) => HeaderMap::new(),
    };
    if let Some(age) = answer.age {
        headers.insert(AGE, age.into());
    }
    if let Some(length) = answer.length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let info = CacheInfo::of(&answer);
    let mut response = Response::new(CacheBody::cached(answer.body, answer.length));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = headers;
    response.extensions_mut().insert(info);
    response
}

/// The 504 for `only-if-cached` without a stored response (RFC 9111 §5.2.1.7).
pub(crate) fn only_if_cached<R>() -> Response<CacheBody<R>> {
    let mut response = Response::new(CacheBody::empty());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response.extensions_mut().insert(CacheInfo::module());
    response
}
