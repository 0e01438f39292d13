//! The site: the model's pages behind a socket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::model::{Chance, Page, Reply as Made, TestRequest, Version, joined};
use crate::support::{Origin, Reply, Seen};

pub(super) struct Site {
    pages: Vec<Page>,
    edits: Arc<Mutex<HashMap<String, Edits>>>,
}

/// How often a page was edited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edits {
    /// As the origin knows it.
    pub(super) begun: u64,
    /// As those know it who had an answer.
    pub(super) done: u64,
}

impl Site {
    pub(super) fn open(origin: &Origin, chance: &mut Chance) -> Self {
        let front = Page {
            // Without number are neither the variants of it nor its editions.
            vary: if chance.one_in(2) {
                vec!["accept-encoding"]
            } else {
                Vec::new()
            },
            deeper: None,
            ..Page::front(chance)
        };
        let mut pages = vec![front];
        pages.extend((1..4).map(|number| Page::any(chance, number)));
        let site = Self {
            pages,
            edits: Arc::default(),
        };
        for page in &site.pages {
            let (answering, edits) = (page.clone(), Arc::clone(&site.edits));
            let mut serial = 0;
            origin.on(&page.path).answer(move |seen| {
                serial += 1;
                let mut edits = edits.lock().expect("nobody panics with it");
                let edits = edits.entry(answering.path.clone()).or_default();
                answer(&answering, edits, &requested(seen), serial)
            });
        }
        site
    }

    /// The page that is never edited.
    pub(super) fn front(&self) -> &Page {
        &self.pages[0]
    }

    pub(super) fn any_page(&self, chance: &mut Chance) -> &Page {
        if chance.one_in(2) {
            self.front()
        } else {
            &self.pages[chance.below(self.pages.len())]
        }
    }

    pub(super) fn edits(&self, page: &Page) -> Edits {
        let edits = self.edits.lock().expect("nobody panics with it");
        edits.get(&page.path).copied().unwrap_or_default()
    }

    /// The edit of that number was acknowledged.
    pub(super) fn note_edit(&self, path: &str, number: u64) {
        let mut edits = self.edits.lock().expect("nobody panics with it");
        let done = &mut edits.entry(path.to_owned()).or_default().done;
        *done = number.max(*done);
    }
}

fn requested(seen: &Seen) -> TestRequest {
    let has_body = ["content-length", "transfer-encoding"]
        .iter()
        .any(|name| seen.field(name).is_some_and(|value| value != "0"));
    TestRequest {
        method: seen.method.clone(),
        target: seen.target.clone(),
        fields: seen.head.fields.clone(),
        has_body,
    }
}

fn answer(page: &Page, edits: &mut Edits, requested: &TestRequest, serial: usize) -> Reply {
    match joined(&requested.fields, "x-crash").as_deref() {
        Some("drop") => return Reply::hang_up(),
        Some("garbage") => return Reply::raw("garbage\r\n\r\n").close(),
        Some(status) => return Reply::new(status.parse().unwrap_or(500)).body("crashed"),
        None => {}
    }
    match requested.method.as_str() {
        "GET" | "HEAD" => {
            let version = Version {
                edits: edits.begun,
                edition: 0,
            };
            written(&page.answer(requested, version, serial))
        }
        "POST" | "DELETE" => {
            edits.begun += 1;
            Reply::ok(&[&format!("X-Edit: {}", edits.begun)], "edited")
        }
        _ => Reply::new(405).body("no"),
    }
}

/// On its way: in chunks or with a length.
fn written(made: &Made) -> Reply {
    let lines = made
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    let reply = lines.fold(Reply::new(made.status), |reply, line| reply.with(&line));
    if made.status == 304 {
        reply.framed("")
    } else if made.chunked && !made.body.is_empty() {
        let (first, rest) = made.body.split_at(made.body.len() / 2 + 1);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut chunked = format!("{:x}\r\n{}\r\n", first.len(), text(first));
        if !rest.is_empty() {
            chunked += &format!("{:x}\r\n{}\r\n", rest.len(), text(rest));
        }
        chunked += "0\r\n\r\n";
        reply.with("Transfer-Encoding: chunked").framed(chunked)
    } else {
        reply.body(&made.body)
    }
}
