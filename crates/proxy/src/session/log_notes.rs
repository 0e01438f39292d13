//! Notes for fields of the access log that are known only while the response is made.

use microcache_engine::Response;
use microcache_policy::FieldsBuf;

use crate::config::{LogConfig, LogField};
use crate::observe::ServerVisit;

/// Notes for a line of the access log.
#[derive(Debug)]
pub(super) struct LogNotes {
    /// The server that the request is sent to.
    pub(super) visit: ServerVisit,
    /// The chosen fields of the response.
    pub(super) response: FieldsBuf,
}

impl LogNotes {
    /// Notes for one request, if the log has such fields.
    pub(super) fn of(logs: &LogConfig) -> Option<Box<Self>> {
        let is_needed = logs.access_fields.iter().any(LogField::needs_note);
        is_needed.then(|| {
            Box::new(Self {
                visit: ServerVisit::default(),
                response: FieldsBuf::new(),
            })
        })
    }

    /// Notes the fields of a response, the last of which counts.
    pub(super) fn answered(&mut self, logs: &LogConfig, response: &Response) {
        self.response = FieldsBuf::new();
        for field in &logs.access_fields {
            if let LogField::Response(name) = field
                && let Some(value) = response.fields().get(name)
            {
                self.response.push(name, value);
            }
        }
    }
}
