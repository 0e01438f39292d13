//! What the scripted origin does when a request comes.

use super::Gate;

/// One answer, as the steps that make it.
#[derive(Clone)]
pub(crate) struct Reply {
    head: Option<String>,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone)]
pub(super) enum Step {
    /// Reads the request's body to its end, after a 100 where one is expected.
    ReadBody,
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes one at a time.
    Drip(Vec<u8>),
    /// Sends these bytes unless the request was HEAD.
    Body(Vec<u8>),
    /// Sends this many bytes of no interest.
    Flood(u64),
    Wait(Gate),
    /// Sends back whatever comes, until the other side closes.
    Echo,
    /// Says nothing until the other side closes.
    Hold,
    Close,
}

impl Reply {
    /// A response to which fields and a body are to be added.
    pub(crate) fn new(status: u16) -> Self {
        let head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        Self {
            head: Some(head),
            steps: vec![Step::ReadBody],
        }
    }

    /// A response with these field lines and this body.
    pub(crate) fn ok(lines: &[&str], body: impl AsRef<[u8]>) -> Self {
        Self::new(200).with_all(lines).body(body)
    }

    /// Exactly these bytes, however wrong.
    pub(crate) fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            head: None,
            steps: vec![Step::ReadBody, Step::Send(bytes.as_ref().to_vec())],
        }
    }

    /// No byte, ever.
    pub(crate) fn silence() -> Self {
        Self {
            head: None,
            steps: vec![Step::ReadBody, Step::Hold],
        }
    }

    /// The connection is closed instead of an answer.
    pub(crate) fn hang_up() -> Self {
        Self {
            head: None,
            steps: vec![Step::ReadBody, Step::Close],
        }
    }

    /// A field line.
    pub(crate) fn with(mut self, line: &str) -> Self {
        let head = self.head.as_mut().expect("fields come before the body");
        head.push_str(line);
        head.push_str("\r\n");
        self
    }

    /// Field lines.
    pub(crate) fn with_all(self, lines: &[&str]) -> Self {
        lines.iter().fold(self, |reply, line| reply.with(line))
    }

    /// The whole body, with its length.
    pub(crate) fn body(self, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        self.with(&format!("Content-Length: {}", body.len()))
            .step(Step::Body(body.to_vec()))
    }

    /// More bytes, as they are.
    pub(crate) fn send(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(Step::Send(bytes.as_ref().to_vec()))
    }

    /// The whole body as it is framed by the fields before it.
    pub(crate) fn framed(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(Step::Body(bytes.as_ref().to_vec()))
    }

    /// One piece of a chunked body.
    pub(crate) fn chunk(self, data: &str) -> Self {
        self.send(format!("{:x}\r\n{data}\r\n", data.len()))
    }

    /// More bytes, each on its own.
    pub(crate) fn drip(self, bytes: impl AsRef<[u8]>) -> Self {
        self.step(Step::Drip(bytes.as_ref().to_vec()))
    }

    /// A great many bytes.
    pub(crate) fn flood(self, length: u64) -> Self {
        self.step(Step::Flood(length))
    }

    /// Waits here until the gate opens.
    pub(crate) fn pause(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Waits before the first byte until the gate opens.
    pub(crate) fn after(mut self, gate: &Gate) -> Self {
        self.steps.insert(1, Step::Wait(gate.clone()));
        self
    }

    /// Waits before the request's body is read until the gate opens.
    pub(crate) fn read_after(mut self, gate: &Gate) -> Self {
        self.steps.insert(0, Step::Wait(gate.clone()));
        self
    }

    /// Answers without reading the request's body.
    pub(crate) fn early(mut self) -> Self {
        self.steps.retain(|step| !matches!(step, Step::ReadBody));
        self
    }

    /// Reads the request's body now; for an answer that began early.
    pub(crate) fn read_body(self) -> Self {
        self.step(Step::ReadBody)
    }

    /// Becomes a tunnel that echoes.
    pub(crate) fn echo(self) -> Self {
        self.step(Step::Echo)
    }

    /// Keeps the connection open and silent.
    pub(crate) fn hold(self) -> Self {
        self.step(Step::Hold)
    }

    pub(crate) fn close(self) -> Self {
        self.step(Step::Close)
    }

    /// The steps, complete.
    pub(super) fn into_steps(mut self) -> Vec<Step> {
        self.end_head();
        self.steps
    }

    fn step(mut self, step: Step) -> Self {
        self.end_head();
        self.steps.push(step);
        self
    }

    fn end_head(&mut self) {
        if let Some(head) = self.head.take() {
            self.steps
                .push(Step::Send(format!("{head}\r\n").into_bytes()));
        }
    }
}

impl From<&str> for Reply {
    fn from(raw: &str) -> Self {
        Self::raw(raw)
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        404 => "Not Found",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Whatever",
    }
}
