//! The client of a running server's admin interface.

use std::time::Duration;

use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, RequestBuilder};

use crate::cli::AdminAddress;

/// The timeout of a request. A durable purge waits for the disk, and an upgrade for the new process.
const TIME_LIMIT: Duration = Duration::from_secs(150);
/// The maximum size of an answer.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(crate) struct Client {
    agent: Agent,
    admin: String,
    authorization: Option<String>,
}

/// The failure of a request.
pub(crate) enum RequestError {
    /// The request is invalid or not allowed.
    Refused(String),
    /// The server cannot be reached, or failed.
    Unreached(String),
}

impl Client {
    pub(crate) fn new(server: &AdminAddress) -> Result<Self, RequestError> {
        let secret = server.token_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| {
                RequestError::Refused(format!("cannot read {}: {error}", path.display()))
            })?;
            Ok(text.lines().next().unwrap_or_default().trim().to_owned())
        });
        let config = Agent::config_builder()
            .timeout_global(Some(TIME_LIMIT))
            .http_status_as_error(false)
            // The proxy of the environment is for the web, not for this server.
            .proxy(None)
            .build();
        Ok(Self {
            agent: config.into(),
            admin: server.admin.clone(),
            authorization: secret.transpose()?.map(|secret| format!("Bearer {secret}")),
        })
    }

    pub(crate) fn get(
        &self,
        path: &str,
        parameters: &[(&str, String)],
    ) -> Result<Value, RequestError> {
        let mut request = self.agent.get(format!("{}{path}", self.admin));
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        self.answer(self.authorized(request).call())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, RequestError> {
        let request = self
            .agent
            .post(format!("{}{path}", self.admin))
            .header("Content-Type", "application/json");
        self.answer(self.authorized(request).send(body.to_string()))
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value, RequestError> {
        let request = self.agent.delete(format!("{}{path}", self.admin));
        self.answer(self.authorized(request).call())
    }

    /// Adds the secret, if there is one.
    fn authorized<Body>(&self, request: RequestBuilder<Body>) -> RequestBuilder<Body> {
        match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        }
    }

    fn answer(
        &self,
        answer: Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<Value, RequestError> {
        let unreached = |error: ureq::Error| {
            RequestError::Unreached(format!(
                "cannot reach {}: {error} (is the server running, and is this its --admin address?)",
                self.admin
            ))
        };
        let mut answer = answer.map_err(unreached)?;
        let status = answer.status();
        let text = answer
            .body_mut()
            .with_config()
            .limit(LARGEST)
            .read_to_string();
        let text = text.map_err(unreached)?;
        let value: Value = serde_json::from_str(&text).map_err(|_| {
            RequestError::Unreached(format!(
                "{} is not a Microcache admin interface (status {status}); set its address with --admin",
                self.admin
            ))
        })?;
        let word = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        match status.as_u16() {
            200..300 => Ok(value),
            400..500 => Err(RequestError::Refused(format!(
                "{} ({})",
                word("detail"),
                word("hint")
            ))),
            _ => Err(RequestError::Unreached(format!(
                "{status}: {} ({})",
                word("detail"),
                word("hint")
            ))),
        }
    }
}
