//! The application behind a server: it answers with recorded heads, and records what it is asked for.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::comparison::{Answer, Comparison, Language};
use super::exchange::Arrival;
use crate::php::fpm::Fpm;
use crate::support::{ANY, Folder, Origin, Reply};

/// A running application with its files.
pub(super) struct Application {
    kind: Kind,
    places: Places,
    _folder: Folder,
}

enum Kind {
    Http(Origin),
    Php { _fpm: Fpm, record: String },
}

/// Values of the placeholders of a configuration.
pub(super) struct Places {
    root: String,
    php: String,
    origin: String,
}

impl Places {
    pub(super) fn fill(&self, text: &str) -> String {
        let origin_port = self.origin.rsplit(':').next().unwrap_or_default();
        text.replace("{root}", &self.root)
            .replace("{php}", &self.php)
            .replace("{origin}", &self.origin)
            .replace("{origin_port}", origin_port)
    }
}

impl Application {
    /// Nothing if php-fpm is needed and not installed.
    pub(super) fn start(comparison: &Comparison) -> Option<Self> {
        let folder = Folder::new();
        let root = folder.file("root");
        for file in &comparison.files {
            write(&root, file, &format!("file: {file}\n"));
        }
        let mut places = Places {
            root: root.clone(),
            php: String::new(),
            origin: String::new(),
        };
        let kind = match comparison.language {
            Language::Http => {
                let origin = http(&comparison.answers);
                places.origin = origin.address().to_string();
                Kind::Http(origin)
            }
            Language::Php => {
                let fpm = Fpm::start()?;
                places.php = fpm.socket();
                let record = folder.write("record", "");
                folder.write("answer.php", script(&comparison.answers, &record));
                let include = format!("<?php require '{}';\n", folder.file("answer.php"));
                for script in &comparison.scripts {
                    write(&root, script, &include);
                }
                Kind::Php { _fpm: fpm, record }
            }
        };
        Some(Self {
            kind,
            places,
            _folder: folder,
        })
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// The requests that reached it so far.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        match &self.kind {
            Kind::Http(origin) => {
                let seen = origin.requests().into_iter();
                let arrivals = seen.map(|seen| Arrival {
                    line: format!("{} {}", seen.method, seen.target),
                    fields: seen.head.fields.clone(),
                });
                arrivals.collect()
            }
            Kind::Php { record, .. } => {
                let text = fs::read_to_string(record).expect("the record");
                text.lines().map(recorded).collect()
            }
        }
    }
}

fn write(root: &str, file: &str, content: &str) {
    let path = Path::new(root).join(file.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, content).expect("a file");
}

fn http(answers: &[Answer]) -> Origin {
    let origin = Origin::start();
    let answers = answers.to_vec();
    origin.on(ANY).answer(move |seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        let mut body = format!("app: {}", seen.target);
        if let Some(cookie) = seen.field("cookie") {
            write!(body, " for {cookie}").expect("memory");
        }
        match answers.iter().find(|answer| answer.path == path) {
            None => Reply::ok(&["Content-Type: text/html"], body),
            Some(answer) => {
                let fields: Vec<&str> = answer.fields.iter().map(String::as_str).collect();
                Reply::new(answer.status).with_all(&fields).body(body)
            }
        }
    });
    origin
}

/// The same in PHP. A line of the record is a request, with tabs between its parts.
fn script(answers: &[Answer], record: &str) -> String {
    let mut table = String::new();
    for Answer {
        path,
        status,
        fields,
    } in answers
    {
        write!(table, "'{path}' => [{status}, [").expect("memory");
        for field in fields {
            write!(table, "'{}', ", field.replace('\'', "\\'")).expect("memory");
        }
        table.push_str("]],\n");
    }
    format!(
        r#"<?php
$uri = $_SERVER['REQUEST_URI'];
[$path, $query] = explode('?', $uri, 2) + [1 => ''];
$line = $_SERVER['REQUEST_METHOD'] . ' ' . $uri . ' by ' . $_SERVER['SCRIPT_NAME'];
if ($_SERVER['QUERY_STRING'] !== $query) $line .= ' with ' . $_SERVER['QUERY_STRING'];
foreach ($_SERVER as $name => $value)
    if (is_string($value) && !strpbrk($value, "\t\n"))
        $line .= "\t" . str_replace('_', '-', preg_replace('/^HTTP_/', '', $name)) . ': ' . $value;
file_put_contents('{record}', $line . "\n", FILE_APPEND | LOCK_EX);
$answers = [{table}];
[$status, $fields] = $answers[$path] ?? $answers[$_SERVER['SCRIPT_NAME']] ?? [200, []];
http_response_code($status);
foreach ($fields as $field) header($field, false);
if ($status !== 204 && $status !== 304)
    echo 'app: ', $uri, isset($_SERVER['HTTP_COOKIE']) ? ' for ' . $_SERVER['HTTP_COOKIE'] : '';
"#
    )
}

fn recorded(line: &str) -> Arrival {
    let mut parts = line.split('\t');
    let line = parts.next().unwrap_or_default().to_owned();
    let fields = parts.filter_map(|part| part.split_once(": "));
    Arrival {
        line,
        fields: fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    }
}
