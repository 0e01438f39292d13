//! A route that answers from a directory, with no application behind it.

use std::fs;

use crate::support::{Folder, Origin, Proxy, Reply, eventually};

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

#[test]
fn files_come_first_and_the_application_gets_the_rest() {
    let (site, origin) = (Folder::new(), Origin::start());
    site.write("app.css", "body {}");
    site.write("wp-config.php", "<?php secret");
    site.write(".env", "SECRET=1");
    site.write("dump.sql", "secret");
    for page in [
        "/",
        "/wp-config.php",
        "/.env",
        "/dump.sql",
        "/app.css",
        "/%2e%2e/etc/passwd",
    ] {
        origin.on(page).reply(Reply::new(200).body("page"));
    }
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\n[[routes]]\nroot = '{}'\notherwise = \"application\"\n",
        origin.url(),
        site.as_str()
    ));
    proxy.get("/").assert_is(200, "page");
    for _ in 0..2 {
        proxy.get("/app.css").assert_is(200, "body {}");
        let personal = proxy.get_with("/app.css?v=2", &["Cookie: session=1"]);
        personal.assert_is(200, "body {}");
    }
    for secret in ["/wp-config.php", "/.env", "/dump.sql", "/%2e%2e/etc/passwd"] {
        proxy.get(secret).assert_is(200, "page");
    }
    proxy
        .send("POST", "/app.css", &["Content-Length: 0"])
        .assert_is(200, "page");
    assert_eq!(origin.count("/app.css"), 1, "a file is never asked for");
}

#[test]
fn the_application_names_the_file_to_send() {
    let (site, origin) = (Folder::new(), Origin::start());
    site.write("a b.pdf", "0123456789");
    site.write(".env", "SECRET=1");
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\n[[routes]]\nx_accel = {{ \"/protected/\" = '{}' }}\n",
        origin.url(),
        site.as_str()
    ));
    let named = |line: &str| {
        Reply::new(200)
            .with(line)
            .with("Content-Type: application/pdf")
            .with("Cache-Control: private")
            .with("Set-Cookie: seen=1")
    };
    let accel = |path: &str| named(&format!("X-Accel-Redirect: /protected/{path}"));
    origin.on("/download/1").reply(accel("a%20b.pdf"));
    origin
        .on("/download/2")
        .reply(named(&format!("X-Sendfile: {}/a b.pdf", site.as_str())));
    origin.on("/hidden").reply(accel(".env"));
    origin.on("/up").reply(accel("../secret"));
    origin.on("/missing").reply(accel("c.pdf"));
    origin
        .on("/outside")
        .reply(named("X-Sendfile: /etc/hostname"));
    origin.on("/other").reply(named("X-Accel-Redirect: /a.pdf"));
    for target in ["/download/1", "/download/2"] {
        let response = proxy.get(target);
        response.assert_is(200, "0123456789");
        assert_eq!(response.field("content-type"), Some("application/pdf"));
        assert_eq!(response.field("set-cookie"), Some("seen=1"));
        assert_eq!(response.field("x-accel-redirect"), None);
        assert_eq!(response.field("x-sendfile"), None);
        let part = proxy.get_with(target, &["Range: bytes=2-4", "Cookie: session=1"]);
        part.assert_is(206, "234");
    }
    for (target, status) in [
        ("/hidden", 404),
        ("/up", 404),
        ("/missing", 404),
        ("/outside", 502),
        ("/other", 502),
    ] {
        assert_eq!(proxy.get(target).status, status, "{target}");
    }
}
