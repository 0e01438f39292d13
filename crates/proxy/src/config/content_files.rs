//! Files with responses and redirects of routes, kept in memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::Config;
use super::mistake::{Mistake, Mistakes};
use super::place::Place;
use super::redirect_list::RedirectList;
use super::route::GoesTo;
use super::units::show_size;

/// Size of the largest body of a fixed response or an error page. Larger files belong in a `root`.
const MAX_BODY: u64 = 1 << 20;
/// Size of the largest file with redirects.
const MAX_REDIRECTS: u64 = 32 << 20;
/// The most mistakes of a file with redirects that are reported.
const MOST_REPORTED: usize = 10;

/// Files that are read once, however many routes have them.
#[derive(Default)]
struct ContentFiles {
    bodies: HashMap<PathBuf, Option<Bytes>>,
    redirects: HashMap<PathBuf, Option<Arc<RedirectList>>>,
}

impl Config {
    /// Reads the files of routes.
    pub(super) fn read_content(&mut self, mistakes: &mut Mistakes) {
        let mut files = ContentFiles::default();
        if let Some(page) = &mut self.maintenance_page {
            page.body = files.body(&page.file, mistakes);
        }
        for route in &mut self.routes {
            if let GoesTo::Respond(response) = &mut route.goes_to
                && let Some(file) = &response.file
            {
                response.body = files.body(file, mistakes);
            }
            for page in &mut route.error_pages.pages {
                page.body = files.body(&page.file, mistakes);
            }
            if let Some(file) = &route.redirects_file {
                route.redirects = files.redirects(file, mistakes);
            }
        }
    }
}

impl ContentFiles {
    fn body(&mut self, (path, place): &(PathBuf, Place), mistakes: &mut Mistakes) -> Bytes {
        let known = self.bodies.entry(path.clone());
        let body = known.or_insert_with(|| mistakes.ok(read(path, place, MAX_BODY)));
        body.clone().unwrap_or_default()
    }

    fn redirects(
        &mut self,
        (path, place): &(PathBuf, Place),
        mistakes: &mut Mistakes,
    ) -> Option<Arc<RedirectList>> {
        let known = self.redirects.entry(path.clone());
        let list = known.or_insert_with(|| {
            let content = mistakes.ok(read(path, place, MAX_REDIRECTS))?;
            match RedirectList::parse(&String::from_utf8_lossy(&content)) {
                Ok(list) => Some(Arc::new(list)),
                Err(found) => {
                    for (line, why) in found.into_iter().take(MOST_REPORTED) {
                        let what = format!("{}:{line}: {why}", path.display());
                        mistakes.note(Mistake::new(place, what));
                    }
                    None
                }
            }
        });
        list.clone()
    }
}

fn read(path: &Path, place: &Place, most: u64) -> Result<Bytes, Mistake> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut content));
    let name = path.display();
    match read {
        Ok(_) if content.len() as u64 > most => {
            let what = format!("{name} is larger than {}", show_size(most));
            Err(Mistake::new(place, what))
        }
        Ok(_) => Ok(content.into()),
        Err(error) => Err(Mistake::new(place, format!("cannot read {name}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use microcache_testkit::Folder;

    use super::*;
    use crate::config::Input;

    fn read(text: &str) -> Result<Config, String> {
        let text = format!("origin = \"http://o:3000\"\n{text}\n");
        let input = Input {
            file: Some(("f", &text)),
            ..Input::default()
        };
        let config = Config::read(input).and_then(Config::with_files);
        config.map_err(|report| report.to_string())
    }

    #[test]
    fn files_are_read_with_the_configuration() {
        let folder = Folder::new();
        let body = folder.write("a.json", "{}");
        let page = folder.write("5xx.html", "<h1>Sorry</h1>");
        let list = folder.write("redirects.txt", "/old /new\n");
        let config = read(&format!(
            "error_pages = {{ 5xx = {page:?} }}\nredirects = {list:?}\n[[routes]]\nmatch = {{ path = \"/a\" }}\n\
             respond = {{ file = {body:?} }}\n[[routes]]\nmatch = {{ path = \"/b\" }}"
        ))
        .expect("good files");
        let GoesTo::Respond(response) = &config.routes[0].goes_to else {
            panic!("{config:?}");
        };
        assert_eq!(
            (&response.body[..], &*response.content_type),
            (&b"{}"[..], "application/json")
        );
        for route in &config.routes {
            let page = route.error_pages.page(503, true).expect("a page");
            assert_eq!(
                (&page.body[..], &*page.content_type),
                (&b"<h1>Sorry</h1>"[..], "text/html; charset=utf-8")
            );
            assert_eq!(route.error_pages.page(503, false), None);
            assert_eq!(route.error_pages.page(404, true), None);
            assert!(
                route
                    .redirects
                    .as_ref()
                    .is_some_and(|list| list.find(b"/old?a").is_some())
            );
        }
    }

    #[test]
    fn mistakes_in_files_name_file_and_line() {
        let folder = Folder::new();
        let large = folder.write("large.html", vec![b'a'; MAX_BODY as usize + 1]);
        let list = folder.write("redirects.txt", "/a /b\n/a /c\n/d\n");
        for (text, says) in [
            (
                "redirects = \"/nonexistent\"".to_owned(),
                vec!["f:2:13: cannot read /nonexistent: "],
            ),
            (
                format!("error_pages = {{ 404 = {large:?} }}"),
                vec!["large.html is larger than 1MiB"],
            ),
            (
                format!("redirects = {list:?}"),
                vec![
                    "redirects.txt:2: `/a` is on line 1 already",
                    "redirects.txt:3: write /OLD /NEW",
                ],
            ),
            (
                "[[routes]]\nrespond = { file = \"/nonexistent\" }".to_owned(),
                vec!["f:3:20: cannot read /nonexistent: "],
            ),
        ] {
            let report = read(&text).expect_err(&text);
            for said in says {
                assert_eq!(report.matches(said).count(), 1, "{text}: {report}");
            }
        }
    }

    #[test]
    fn a_single_status_comes_before_its_class() {
        let folder = Folder::new();
        let (one, class) = (
            folder.write("503.html", "one"),
            folder.write("5xx.html", "class"),
        );
        let config = read(&format!(
            "error_pages = {{ 5xx = {class:?}, 503 = {one:?} }}\nerror_pages_from = \"all\""
        ))
        .expect("good files");
        let pages = &config.routes[0].error_pages;
        let page = |status| pages.page(status, false).map(|page| &page.body[..]);
        assert_eq!(
            (page(503), page(502), page(404)),
            (Some(&b"one"[..]), Some(&b"class"[..]), None)
        );
        let report = read("error_pages = { 200 = \"/a\" }").expect_err("no error");
        assert!(report.contains("`200` is no error"), "{report}");
    }
}
