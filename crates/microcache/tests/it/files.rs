//! A route that answers from a directory, with no application behind it.

use std::fs;

use crate::support::{Folder, Proxy, eventually};

fn serve(folder: &Folder, lines: &str) -> Proxy {
    let root = folder.as_str();
    Proxy::with_config(&format!("[[routes]]\nroot = '{root}'\n{lines}\n"))
}

#[test]
fn files_are_kept_and_looked_at_again_when_they_expire() {
    let site = Folder::new();
    site.write("index.html", "old");
    let proxy = serve(&site, "ttl = \"50ms\"\nstale_while_revalidate = \"0s\"");
    let first = proxy.get("/");
    assert_eq!((first.status, first.text()), (200, "old".to_owned()));
    assert_eq!(
        first.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    let again = eventually("it expires and is confirmed", || {
        let again = proxy.get("/");
        let status = again.field("cache-status").unwrap_or_default().to_owned();
        status.contains("fwd-status=304").then_some(again)
    });
    assert_eq!((again.status, again.text()), (200, "old".to_owned()));
    site.write("index.html", "new, and longer");
    eventually("the new one is sent", || {
        (proxy.get("/").text() == "new, and longer").then_some(())
    });
    fs::remove_file(site.file("index.html")).expect("it is gone");
    eventually("it is gone", || {
        (proxy.get("/").status == 404).then_some(())
    });
}

#[test]
fn queries_select_the_same_file_and_ranges_are_cut_from_it() {
    let site = Folder::new();
    site.write("a.txt", "0123456789".repeat(50_000));
    let proxy = serve(&site, "ttl = \"1h\"");
    let whole = proxy.get("/a.txt?v=1");
    assert_eq!((whole.status, whole.text().len()), (200, 500_000));
    let part = proxy.get_with("/a.txt?v=2", &["Range: bytes=499995-"]);
    assert_eq!((part.status, part.text()), (206, "56789".to_owned()));
    assert!(
        part.field("cache-status")
            .is_some_and(|status| status.contains("hit"))
    );
    let tag = whole.field("etag").expect("it has one").to_owned();
    let known = proxy.get_with("/a.txt", &[&format!("If-None-Match: {tag}")]);
    assert_eq!(known.status, 304);
    assert_eq!(proxy.send("POST", "/a.txt", &[]).status, 405);
    assert_eq!(proxy.get("/../a.txt").status, 404);
    assert_eq!(proxy.get("/%2e%2e/%2e%2e/etc/hostname").status, 404);
}
