//! Talking to the interface of a running server.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use crate::cli::Operated;

/// How long an answer may take. The server waits for its disk where a purge has to outlive it, and for the
/// process that takes its place, twice a minute at most.
const PATIENCE: Duration = Duration::from_secs(150);
/// The longest answer.
const LARGEST: u64 = 64 * 1024 * 1024;

pub(crate) struct Client {
    agent: Agent,
    admin: String,
    authorization: Option<String>,
}

/// Why there is no answer.
pub(crate) enum Failed {
    /// What was asked makes no sense there, or is not allowed.
    Refused(String),
    /// Nobody answers, or with a failure.
    Unreached(String),
}

impl Client {
    pub(crate) fn new(server: &Operated) -> Result<Self, Failed> {
        let secret = server.token_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failed::Refused(format!("cannot read {}: {error}", path.display()))
            })?;
            Ok(text.lines().next().unwrap_or_default().trim().to_owned())
        });
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            // The server is meant, and not what the environment says of the web.
            .proxy(None)
            .build();
        Ok(Self {
            agent: config.into(),
            admin: server.admin.clone(),
            authorization: secret.transpose()?.map(|secret| format!("Bearer {secret}")),
        })
    }

    pub(crate) fn get(&self, path: &str, parameters: &[(&str, String)]) -> Result<Value, Failed> {
        let mut request = self.agent.get(format!("{}{path}", self.admin));
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.answer(request.call())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.admin))
            .header("Content-Type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        self.answer(request.send(body.to_string()))
    }

    fn answer(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, Failed> {
        let unreached = |error: ureq::Error| {
            Failed::Unreached(format!(
                "no answer from {}: {error} (does it run, and with this address as --admin?)",
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
        let told: Value = serde_json::from_str(&text).map_err(|_| {
            Failed::Unreached(format!(
                "{} is no interface of microcache: it answers {status} with something else (--admin says where it is)",
                self.admin
            ))
        })?;
        let word = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        match status.as_u16() {
            200..300 => Ok(told),
            400..500 => Err(Failed::Refused(format!(
                "{} ({})",
                word("detail"),
                word("hint")
            ))),
            _ => Err(Failed::Unreached(format!(
                "{status}: {} ({})",
                word("detail"),
                word("hint")
            ))),
        }
    }
}
