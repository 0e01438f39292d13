//! Problem details of refused requests (RFC 9457).

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

/// Problem details of a rejected request, which has changed nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// Field of the request that is invalid.
    field: Option<String>,
    detail: String,
    remedy: String,
    /// Mistakes in the configuration.
    mistakes: Vec<Value>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            status,
            field: None,
            detail: detail.into(),
            remedy: remedy.into(),
            mistakes: Vec::new(),
        }
    }

    /// 404: no resource of the interface has this URL.
    pub(crate) fn not_found(uri: &Uri) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("there is no resource at {}", uri.path()),
            "GET /v1/openapi.json describes all resources",
        )
    }

    /// Adds mistakes in the configuration.
    pub(crate) fn with_mistakes(self, mistakes: Vec<Value>) -> Self {
        Self { mistakes, ..self }
    }

    /// Creates a 400 response for an invalid field.
    pub(crate) fn of_field(
        field: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::new(StatusCode::BAD_REQUEST, detail, remedy)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "status": self.status.as_u16(),
            "title": self.status.canonical_reason(),
            "detail": self.detail,
            "field": self.field,
            "hint": self.remedy,
        });
        if !self.mistakes.is_empty() {
            body["mistakes"] = self.mistakes.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, problem);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<JsonRejection> for Problem {
    fn from(why: JsonRejection) -> Self {
        let remedy = "send JSON with Content-Type: application/json; docs/api.md lists the members";
        // Malformed JSON and unexpected members get the same status.
        let status = match why.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            other => other,
        };
        Self::new(status, why.body_text(), remedy)
    }
}

impl From<QueryRejection> for Problem {
    fn from(why: QueryRejection) -> Self {
        let remedy = "docs/api.md lists the parameters";
        Self::new(why.status(), why.body_text(), remedy)
    }
}
