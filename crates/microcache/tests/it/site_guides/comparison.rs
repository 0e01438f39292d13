//! The cases of one site, read from a text: a head of `key: value` lines, then a block for each case.
//!
//! ```text
//! server: nginx                       what the original is for: nginx, varnish
//! application: php                    php, http
//! replace: /run/php.sock => {php}     a text of the translation, and its place in the test: {root}, {php}, {origin}, {origin_port}
//!                                     or {home}
//! drop: acme                          a line of the translation that the test does without
//! show: cache-control                 response fields that are compared, beside Location and Set-Cookie
//! sent: cookie                        request fields at the application that are compared
//! file: /a.css                        files below {root}, of which each contains its name
//! script: /index.php                  scripts below {root}
//! answer: /news/ 200                  the application's response to a path, with lines for its fields
//!     Cache-Control: max-age=60       (or of a script); without an answer it is 200
//!
//! # A case
//! > GET /news/                        a request
//! > Cookie: a=b                       a field of it
//! show: server                        more fields that are compared, as above
//! both:                               or `original:`, `here:` and `because:`
//!   200 app: /news/                   a response with the fields that are compared
//!     > GET /news/                    what reached the application for it
//! ```

use super::exchange::Request;

/// The configuration and the cases of one site.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) server: Server,
    pub(super) language: Language,
    pub(super) replace: Vec<(String, String)>,
    pub(super) drop: Vec<String>,
    pub(super) show: Vec<String>,
    pub(super) sent: Vec<String>,
    pub(super) files: Vec<String>,
    pub(super) scripts: Vec<String>,
    pub(super) answers: Vec<Answer>,
    pub(super) cases: Vec<Case>,
}

/// The program that the original is a configuration of.
#[derive(Clone, Copy, Default)]
pub(crate) enum Server {
    #[default]
    Nginx,
    Varnish,
}

/// The application's protocol.
#[derive(Clone, Copy, Default)]
pub(super) enum Language {
    #[default]
    Http,
    Php,
}

/// The application's response to a path.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) path: String,
    pub(super) status: u16,
    pub(super) fields: Vec<String>,
}

/// Requests, and what they give.
#[derive(Default)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) requests: Vec<Request>,
    pub(super) show: Vec<String>,
    pub(super) sent: Vec<String>,
    pub(super) expected: Expected,
}

/// Transcripts of a case.
pub(super) enum Expected {
    Both(String),
    Differs {
        original: String,
        here: String,
        because: String,
    },
}

impl Default for Expected {
    fn default() -> Self {
        Self::Both(String::new())
    }
}

impl Comparison {
    pub(super) fn read(text: &str) -> Self {
        let (head, cases) = text.split_once("\n# ").expect("there are cases");
        let mut comparison = Self::default();
        for line in head.lines().filter(|line| !line.trim().is_empty()) {
            comparison.head_line(line);
        }
        comparison.cases = cases.split("\n# ").map(Case::read).collect();
        comparison
    }

    fn head_line(&mut self, line: &str) {
        if line.starts_with(' ') {
            let answer = self.answers.last_mut().expect("fields of an answer");
            answer.fields.push(line.trim().to_owned());
            return;
        }
        let (key, value) = line.split_once(':').expect("a key and a value");
        let value = value.trim();
        let names = || value.split(", ").map(str::to_owned);
        match key {
            "server" if value == "varnish" => self.server = Server::Varnish,
            "application" if value == "php" => self.language = Language::Php,
            "server" | "application" => {}
            "replace" => {
                let (from, to) = value.split_once(" => ").expect("`A => B`");
                self.replace.push((from.to_owned(), to.to_owned()));
            }
            "drop" => self.drop.extend(names()),
            "show" => self.show.extend(names()),
            "sent" => self.sent.extend(names()),
            "file" => self.files.extend(names()),
            "script" => self.scripts.extend(names()),
            "answer" => {
                let (path, status) = value.split_once(' ').expect("a path and a status");
                self.answers.push(Answer {
                    path: path.to_owned(),
                    status: status.parse().expect("a status"),
                    fields: Vec::new(),
                });
            }
            _ => panic!("unknown key: {line}"),
        }
    }

    pub(super) fn original_file(&self, name: &str) -> String {
        let end = match self.server {
            Server::Nginx => "conf",
            Server::Varnish => "vcl",
        };
        format!("originals/{name}.{end}")
    }

    /// Reasons of the differences.
    pub(super) fn reasons(&self) -> Vec<&str> {
        let reasons = self.cases.iter().filter_map(|case| match &case.expected {
            Expected::Differs { because, .. } => Some(&**because),
            Expected::Both(_) => None,
        });
        reasons.collect()
    }
}

impl Case {
    fn read(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let name = lines.next().expect("a name").trim_start_matches("# ");
        let mut case = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        let mut parts = [const { String::new() }; 3];
        let mut because = None;
        let mut part = 0;
        for line in lines {
            if let Some(line) = line.strip_prefix("> ") {
                match line.split_once(": ") {
                    Some(_) => {
                        let request = case.requests.last_mut().expect("fields of a request");
                        request.fields.push(line.to_owned());
                    }
                    None => case.requests.push(Request::read(line)),
                }
            } else if let Some(names) = line.strip_prefix("show: ") {
                case.show.extend(names.split(", ").map(str::to_owned));
            } else if let Some(names) = line.strip_prefix("sent: ") {
                case.sent.extend(names.split(", ").map(str::to_owned));
            } else if let Some(reason) = line.strip_prefix("because: ") {
                because = Some(reason.to_owned());
            } else if let Some(named) = ["both:", "original:", "here:"]
                .iter()
                .position(|name| *name == line)
            {
                part = named;
            } else {
                assert!(line.starts_with("  "), "{name}: {line}");
                parts[part].push_str(line);
                parts[part].push('\n');
            }
        }
        let [both, original, here] = parts;
        case.expected = match because {
            None => {
                assert!(original.is_empty() && here.is_empty(), "{name}: because");
                Expected::Both(both)
            }
            Some(because) => {
                assert!(both.is_empty() && original != here, "{name}: no difference");
                Expected::Differs {
                    original,
                    here,
                    because,
                }
            }
        };
        case
    }
}
