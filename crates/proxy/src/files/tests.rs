//! Responses of an origin that is a directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use http::Method;
use microcache_engine::{
    Body, BoxFuture, Frame, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::{FieldsBuf, Time};
use microcache_testkit::Folder;

use super::answer::{FileRequest, answer};
use super::{FilesFirstOrigin, Root};

/// A directory next to files that must not be reachable.
struct Site {
    outside: Folder,
    root: Root,
}

impl Site {
    fn new() -> Self {
        let outside = Folder::new();
        let folder = outside.path().join("site");
        fs::create_dir_all(folder.join("blog")).expect("a folder");
        outside.write("secret.txt", "secret");
        fs::write(folder.join("index.html"), "<p>home").expect("a file");
        fs::write(folder.join("blog/index.html"), "<p>blog").expect("a file");
        fs::write(folder.join("a b.css"), "body {}").expect("a file");
        fs::write(folder.join(".env"), "PASSWORD=1").expect("a file");
        let root = Root {
            folder,
            index: "index.html".to_owned(),
            precompressed: false,
        };
        Self { outside, root }
    }

    fn try_ask(
        &self,
        method: Method,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Result<OriginResponse, OriginError> {
        let mut lines = FieldsBuf::new();
        for (name, value) in fields {
            lines.push(name, value);
        }
        let target = target.as_bytes().to_vec().into();
        let file_request = FileRequest {
            method,
            target,
            fields: lines,
            now: Time::from_millis(4_000_000_000_000),
        };
        answer(&self.root, &file_request)
    }

    fn ask(&self, target: &str, fields: &[(&str, &str)]) -> OriginResponse {
        self.try_ask(Method::GET, target, fields)
            .expect("an answer")
    }
}

async fn text(mut response: OriginResponse) -> String {
    let mut all = Vec::new();
    while let Some(frame) = response.body.frame().await {
        if let Ok(Frame::Data(data)) = frame {
            all.extend_from_slice(&data);
        }
    }
    assert!(
        response
            .length
            .is_none_or(|length| length == all.len() as u64)
    );
    String::from_utf8(all).expect("text")
}

fn field(response: &OriginResponse, name: &str) -> String {
    let value = response.fields.fields().get(name).unwrap_or_default();
    String::from_utf8(value.to_vec()).expect("text")
}

#[tokio::test]
async fn files_are_answers_and_folders_have_an_index() {
    let site = Site::new();
    let home = site.ask("/", &[]);
    assert_eq!(
        (home.status, field(&home, "content-type")),
        (200, "text/html; charset=utf-8".to_owned())
    );
    assert_eq!(text(home).await, "<p>home");
    assert_eq!(text(site.ask("/blog/?page=2", &[])).await, "<p>blog");
    let css = site.ask("/a%20b.css", &[]);
    assert_eq!(field(&css, "content-type"), "text/css; charset=utf-8");
    assert_eq!(text(css).await, "body {}");
    let moved = site.ask("/blog?page=2", &[]);
    assert_eq!(
        (moved.status, field(&moved, "location")),
        (301, "/blog/?page=2".to_owned())
    );
    for nothing in [
        "/missing",
        "/index.html/",
        "/a%20b.css/x",
        "/..",
        "/.env",
        "//blog",
        "/blog/%2e%2e/.env",
    ] {
        assert_eq!(site.ask(nothing, &[]).status, 404, "{nothing}");
    }
    let refused = site.try_ask(Method::POST, "/", &[]).expect("an answer");
    assert_eq!(
        (refused.status, field(&refused, "allow")),
        (405, "GET, HEAD".to_owned())
    );
    let head = site.try_ask(Method::HEAD, "/", &[]).expect("an answer");
    assert_eq!((head.status, head.length), (200, Some(7)));
}

#[tokio::test]
async fn links_that_stay_inside_are_followed_and_no_others() {
    let site = Site::new();
    let at = |name: &str| site.root.folder.join(name);
    symlink("index.html", at("inside.html")).expect("a link");
    symlink("../secret.txt", at("out.txt")).expect("a link");
    symlink(site.outside.path().join("secret.txt"), at("absolute.txt")).expect("a link");
    symlink("..", at("up")).expect("a link");
    symlink("round", at("round")).expect("a link");
    symlink("/proc/self/root", at("magic")).expect("a link");
    assert_eq!(text(site.ask("/inside.html", &[])).await, "<p>home");
    for out in [
        "/out.txt",
        "/absolute.txt",
        "/up/secret.txt",
        "/up/",
        "/round",
        "/magic/etc/hostname",
    ] {
        assert_eq!(site.ask(out, &[]).status, 404, "{out}");
    }
    // Hidden files stay hidden, whichever way leads there.
    fs::create_dir_all(at(".git/objects")).expect("a folder");
    fs::create_dir_all(at(".well-known")).expect("a folder");
    for file in [
        ".env",
        ".git/config",
        ".git/objects/page.html",
        ".well-known/security.txt",
    ] {
        fs::write(at(file), "hidden").expect("a file");
    }
    for (link, to) in [
        ("env.txt", ".env"),
        ("again.txt", "env.txt"),
        ("repository", ".git"),
        ("objects", "blog/../.git/objects"),
        ("blog/env.txt", ".././../site/.env"),
        ("blog/above.txt", "../.env"),
        ("contact.txt", ".well-known/../.well-known/security.txt"),
        ("blog/home.html", "../blog/../inside.html"),
        ("here", "."),
        ("articles", "blog/"),
    ] {
        symlink(to, at(link)).expect("a link");
    }
    for hidden in [
        "/env.txt",
        "/again.txt",
        "/repository/config",
        "/repository/",
        "/objects/page.html",
        "/blog/env.txt",
        "/blog/above.txt",
        "/here/env.txt",
    ] {
        assert_eq!(site.ask(hidden, &[]).status, 404, "{hidden}");
    }
    for (shown, content) in [
        ("/contact.txt", "hidden"),
        ("/blog/home.html", "<p>home"),
        ("/here/here/", "<p>home"),
        ("/articles/", "<p>blog"),
    ] {
        assert_eq!(text(site.ask(shown, &[])).await, content, "{shown}");
    }
    // Opening a pipe would block until it has a writer.
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).expect("a pipe");
    assert_eq!(site.ask("/pipe", &[]).status, 404);
    // After a switch of the link, the other directory is served.
    let other = site.outside.path().join("other");
    fs::create_dir_all(&other).expect("a folder");
    fs::write(other.join("index.html"), "<p>new").expect("a file");
    fs::rename(&site.root.folder, site.outside.path().join("old")).expect("it moves");
    assert!(
        matches!(site.try_ask(Method::GET, "/", &[]), Err(OriginError::Connect(what)) if what.contains("site"))
    );
    symlink("other", &site.root.folder).expect("a link");
    assert_eq!(text(site.ask("/", &[])).await, "<p>new");
}

#[tokio::test]
async fn validators_and_ranges_are_kept() {
    let site = Site::new();
    let first = site.ask("/", &[]);
    let (tag, modified) = (field(&first, "etag"), field(&first, "last-modified"));
    for known in [("If-None-Match", &*tag), ("If-Modified-Since", &*modified)] {
        let again = site.ask("/", &[known]);
        assert_eq!(
            (again.status, field(&again, "etag")),
            (304, tag.clone()),
            "{known:?}"
        );
    }
    assert_eq!(site.ask("/", &[("If-None-Match", "\"other\"")]).status, 200);
    assert_eq!(site.ask("/", &[("If-Match", "\"other\"")]).status, 412);
    let part = site.ask("/", &[("Range", "bytes=3-5"), ("If-Range", &tag)]);
    assert_eq!(
        (part.status, field(&part, "content-range")),
        (206, "bytes 3-5/7".to_owned())
    );
    assert_eq!(text(part).await, "hom");
    let dated = site.ask("/", &[("Range", "bytes=3-5"), ("If-Range", &modified)]);
    assert_eq!(dated.status, 206);
    let whole = site.ask("/", &[("Range", "bytes=3-5"), ("If-Range", "\"other\"")]);
    assert_eq!(whole.status, 200);
    let beyond = site.ask("/", &[("Range", "bytes=7-")]);
    assert_eq!(
        (beyond.status, field(&beyond, "content-range")),
        (416, "bytes */7".to_owned())
    );
    // Another file of the same size and time has another tag.
    let path = site.root.folder.join("index.html");
    let time = fs::metadata(&path)
        .and_then(|about| about.modified())
        .expect("a time");
    let new = site.root.folder.join("new");
    fs::write(&new, "<p>HOME").expect("a file");
    let file = fs::File::options().write(true).open(&new).expect("a file");
    file.set_modified(time).expect("a time");
    fs::rename(&new, &path).expect("it moves");
    assert_eq!(site.ask("/", &[("If-None-Match", &tag)]).status, 200);
}

#[tokio::test]
async fn a_large_file_is_sent_in_pieces_and_a_shrinking_one_is_truncated() {
    let site = Site::new();
    let path = site.root.folder.join("large.txt");
    let content = "0123456789".repeat(100_000);
    fs::write(&path, &content).expect("a file");
    assert_eq!(text(site.ask("/large.txt", &[])).await, content);
    let end = site.ask("/large.txt", &[("Range", "bytes=-300001")]);
    assert_eq!(text(end).await, content[content.len() - 300_001..]);
    let mut shrinks = site.ask("/large.txt", &[]);
    assert!(matches!(
        shrinks.body.frame().await,
        Some(Ok(Frame::Data(_)))
    ));
    let file = fs::File::options().write(true).open(&path).expect("a file");
    file.set_len(200_000).expect("it is shorter");
    let rest = async {
        while let Some(frame) = shrinks.body.frame().await {
            frame?;
        }
        Ok::<_, microcache_engine::BodyError>(())
    };
    assert!(rest.await.is_err());
}

#[tokio::test]
async fn the_smallest_that_is_accepted_is_sent() {
    let mut site = Site::new();
    for ending in ["br", "gz"] {
        fs::write(
            site.root.folder.join(format!("index.html.{ending}")),
            ending,
        )
        .expect("a file");
    }
    let accept = |coding| [("Accept-Encoding", coding)];
    assert_eq!(field(&site.ask("/", &accept("br")), "content-encoding"), "");
    site.root.precompressed = true;
    for (accepted, coding, content) in [
        ("gzip, br", "br", "br"),
        ("gzip, br;q=0", "gzip", "gz"),
        ("zstd", "", "<p>home"),
        ("*", "br", "br"),
        ("identity", "", "<p>home"),
    ] {
        let answer = site.ask("/", &accept(accepted));
        assert_eq!(field(&answer, "content-encoding"), coding, "{accepted}");
        assert_eq!(field(&answer, "vary"), "Accept-Encoding");
        assert_eq!(field(&answer, "content-type"), "text/html; charset=utf-8");
        assert_eq!(text(answer).await, content);
    }
    // A file without precompressed ones does not vary.
    assert_eq!(field(&site.ask("/a%20b.css", &accept("br")), "vary"), "");
}

/// An application that answers every request, and says what for.
struct Application;

impl Origin for Application {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let mut fields = request.fields;
        fields.push("X-Asked", &request.target);
        Box::pin(std::future::ready(Ok(OriginResponse {
            status: 203,
            fields,
            length: Some(0),
            body: Body::Empty,
            tunnel: None,
            waited: 0,
        })))
    }
}

#[tokio::test]
async fn what_is_no_file_goes_to_the_application() {
    let site = Site::new();
    fs::write(site.root.folder.join("index.php"), "<?php").expect("a file");
    fs::create_dir(site.root.folder.join("empty")).expect("a folder");
    symlink("index.php", site.root.folder.join("source.txt")).expect("a link");
    let origin = FilesFirstOrigin::new(site.root.clone(), Arc::new(Application));
    let ask = async |method: Method, target: &str| {
        let target = target.as_bytes().to_vec().into();
        let mut request = OriginRequest::bare(method, "a".into(), target);
        request.fields.push("X-Mine", "1");
        origin.fetch(request).await.expect("an answer")
    };
    for file in ["/", "/a%20b.css", "/a%20b.css?v=1", "/blog/"] {
        assert_eq!(ask(Method::GET, file).await.status, 200, "{file}");
    }
    assert_eq!(ask(Method::HEAD, "/a%20b.css").await.status, 200);
    assert_eq!(ask(Method::GET, "/blog").await.status, 301);
    for page in [
        "/missing",
        "/empty",
        "/empty/",
        "/index.php",
        "/source.txt",
        "/.env",
        "/blog/../x",
        "/a%20b.css/x",
        "*",
    ] {
        let response = ask(Method::GET, page).await;
        assert_eq!(
            (response.status, field(&response, "x-asked")),
            (203, page.to_owned())
        );
        assert_eq!(field(&response, "x-mine"), "1");
    }
    assert_eq!(ask(Method::POST, "/").await.status, 203);
}
