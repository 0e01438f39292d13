//! Requests, responses and arrivals at the application, and their lines in a transcript.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::support::{Client, Response};

/// Fields of responses that are always compared.
const ALWAYS: [&str; 2] = ["location", "set-cookie"];

/// A request of a case.
pub(super) struct Request {
    line: String,
    pub(super) fields: Vec<String>,
}

/// A response, as it came from one of the two.
pub(super) struct Answered {
    response: Response,
    port: u16,
    is_purge: bool,
}

/// A request as the application received it.
#[derive(Clone)]
pub(super) struct Arrival {
    pub(super) line: String,
    pub(super) fields: Vec<(String, String)>,
}

impl Request {
    pub(super) fn read(line: &str) -> Self {
        assert!(
            line.split(' ').count() == 2,
            "a method and a target: {line}"
        );
        Self {
            line: line.to_owned(),
            fields: Vec::new(),
        }
    }

    /// Sends it on a connection of its own.
    pub(super) fn send(&self, to: SocketAddr) -> Answered {
        let mut text = format!("{} HTTP/1.1\r\n", self.line);
        let names = |name: &str| {
            let mut lines = self.fields.iter().map(|line| line.split(':').next());
            lines.any(|it| it.is_some_and(|it| it.eq_ignore_ascii_case(name)))
        };
        if !names("host") {
            text.push_str("Host: example.com\r\n");
        }
        if self.line.starts_with("POST ") && !names("content-length") {
            text.push_str("Content-Length: 0\r\n");
        }
        for line in &self.fields {
            write!(text, "{line}\r\n").expect("memory");
        }
        text.push_str("\r\n");
        let mut client = Client::connect(to);
        client.send(text);
        let response = if self.line.starts_with("HEAD ") {
            client.response_to_head()
        } else {
            client.response()
        };
        Answered {
            response,
            port: to.port(),
            is_purge: self.line.starts_with("PURGE "),
        }
    }
}

impl Answered {
    /// Status, body and the fields that are compared. Both servers have texts of their own for errors, redirects and purges,
    /// which do not count; those of the application and of files begin with what they are.
    pub(super) fn show(&self, names: &[String]) -> String {
        let body = self.response.text();
        let may_be_own = self.is_purge || self.response.status >= 300;
        let is_own = may_be_own && !body.contains("app: ") && !body.contains("file: ");
        let body = if is_own { "" } else { body.trim() };
        let mut text = format!("  {} {body}", self.response.status)
            .trim_end()
            .to_owned();
        text.push('\n');
        let names = ALWAYS.into_iter().chain(names.iter().map(String::as_str));
        for name in names {
            for value in self.response.head.all(name) {
                let value = value.replace(&format!(":{}", self.port), "");
                // Dates depend on when the test runs.
                let is_date = value.ends_with(" GMT");
                let value = if is_date { "DATE" } else { &value };
                writeln!(text, "    {name}: {value}").expect("memory");
            }
        }
        text
    }
}

impl Arrival {
    pub(super) fn show(&self, names: &[String]) -> String {
        let mut text = format!("    > {}\n", self.line);
        for name in names {
            let of_name = |(it, _): &&(String, String)| it.eq_ignore_ascii_case(name);
            for (_, value) in self.fields.iter().filter(of_name) {
                writeln!(text, "      {name}: {value}").expect("memory");
            }
        }
        text
    }
}
