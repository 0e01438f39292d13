//! Responses on disk: they survive the process, and never come back wrong.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{assert_found, disk_in, end, lasting, refused, tier_of};
use crate::support::{Folder, Origin, Proxy, Reply, eventually, noise};

#[test]
fn entries_survive_a_restart() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let body = noise(10_000, 1);
    origin.on("/page").reply(
        Reply::new(200)
            .with_all(&["Cache-Control: max-age=1000", "Age: 300", "ETag: \"a\""])
            .with("X-Of-The-Origin: yes")
            .body(&body),
    );
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    let first = proxy.get("/page");
    first.assert_forwarded("uri-miss");
    end(proxy);

    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    let found = proxy.get("/page");
    assert_found(&found, "disk", &body);
    for name in ["etag", "date", "x-of-the-origin", "cache-control"] {
        assert_eq!(found.field(name), first.field(name), "{name}");
    }
    let age: u64 = found.field("age").expect("an age").parse().unwrap();
    assert!((300..400).contains(&age), "{age}");
    let ttl = found.cache().ttl().expect("a ttl");
    assert!((600..=700).contains(&ttl), "{ttl}");

    // The next one needs no disk.
    let again = proxy.get("/page");
    again.assert_hit();
    assert_eq!(tier_of(&again), None);
    assert!(again.body == body);
    let known = proxy.get_with("/page", &["If-None-Match: \"a\""]);
    assert_eq!(known.status, 304);
    assert_eq!(origin.count("/page"), 1);
}

#[test]
fn stale_entries_are_revalidated_or_fetched_after_a_restart() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin.on("/page").answer(|seen| {
        let fields = [
            "Cache-Control: max-age=0, stale-if-error=1000",
            "ETag: \"a\"",
        ];
        match seen.field("if-none-match") {
            Some("\"a\"") => Reply::new(304).with_all(&fields),
            _ => Reply::new(200).with_all(&fields).body("one"),
        }
    });
    let flags = [
        "--disk",
        &disk_in(&folder),
        "--stale-while-revalidate",
        "0s",
    ];
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "one");
    end(proxy);

    let proxy = Proxy::start(&origin, &flags);
    let confirmed = proxy.get("/page");
    confirmed.assert_is(200, "one");
    assert_eq!(confirmed.cache().get("fwd-status"), Some("304"));
    assert_eq!(origin.count("/page"), 2);
}

#[test]
fn stale_entries_are_served_after_a_restart_if_the_origin_fails() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let page = Reply::new(200).with("Cache-Control: max-age=0, stale-if-error=1000");
    origin
        .on("/page")
        .reply(page.body("one"))
        .reply(Reply::new(503).body("down"));
    let flags = [
        "--disk",
        &disk_in(&folder),
        "--stale-while-revalidate",
        "0s",
    ];
    let proxy = Proxy::start(&origin, &flags);
    proxy.get("/page").assert_is(200, "one");
    end(proxy);

    let proxy = Proxy::start(&origin, &flags);
    let stale = proxy.get("/page");
    stale.assert_is(200, "one");
    assert_eq!(stale.cache().get("detail"), Some("origin-error"));
    end(proxy);

    let proxy = Proxy::start(&origin, &flags);
    origin.stop();
    let stale = proxy.get("/page");
    stale.assert_is(200, "one");
    assert_eq!(stale.cache().get("detail"), Some("origin-unreachable"));
}

#[test]
fn every_variant_is_found_again() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin.on("/page").answer(|seen| {
        let language = seen.field("user-agent").unwrap_or("none").to_owned();
        lasting_variant(&language)
    });
    let ask = |proxy: &Proxy, language: &str| {
        proxy.get_with("/page", &[&format!("User-Agent: {language}")])
    };
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    for language in ["en", "de", "fr"] {
        ask(&proxy, language).assert_is(200, language);
    }
    end(proxy);

    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    for language in ["fr", "en", "de"] {
        assert_found(&ask(&proxy, language), "disk", language.as_bytes());
    }
    let other = ask(&proxy, "it");
    other.assert_is(200, "it");
    assert!(!other.is_hit());
    assert_eq!(origin.count("/page"), 4);
}

fn lasting_variant(language: &str) -> Reply {
    Reply::ok(
        &["Cache-Control: max-age=1000", "Vary: User-Agent"],
        language,
    )
}

/// Memory takes bodies of 64 KiB here.
#[test]
fn bodies_too_large_for_memory_are_read_from_disk_in_whole_and_in_part() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let body = noise(3_000_000, 7);
    origin.on("/known").reply(lasting(&body));
    let text: String = noise(2_000_000, 8)
        .iter()
        .map(|b| char::from(b'a' + b % 26))
        .collect();
    let chunked = text.as_bytes().chunks(100_000).fold(
        Reply::new(200).with_all(&["Cache-Control: max-age=1000", "Transfer-Encoding: chunked"]),
        |reply, piece| reply.chunk(std::str::from_utf8(piece).unwrap()),
    );
    origin.on("/unknown").reply(chunked.send("0\r\n\r\n"));
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.get("/known").body == body);
    assert!(proxy.get("/unknown").body == text.as_bytes());

    let check = |proxy: &Proxy| {
        for (target, body) in [("/known", &body[..]), ("/unknown", text.as_bytes())] {
            let whole = eventually("the body on disk", || {
                let response = proxy.get(target);
                assert!(response.body == body, "{target}");
                response.is_hit().then_some(response)
            });
            assert_eq!(
                whole.field("content-length"),
                Some(&*body.len().to_string())
            );
            let last = body.len() - 1;
            for (range, first, last) in [
                ("0-0", 0, 0),
                ("1000000-1099999", 1_000_000, 1_099_999),
                ("-5", last - 4, last),
                ("1999990-", 1_999_990, last),
            ] {
                let part = proxy.get_with(target, &[&format!("Range: bytes={range}")]);
                assert_eq!(part.status, 206);
                assert!(part.is_hit());
                assert!(part.body == body[first..=last], "{target} {range}");
                let expected = format!("bytes {first}-{last}/{}", body.len());
                assert_eq!(part.field("content-range"), Some(&*expected));
            }
            let beyond = proxy.get_with(target, &["Range: bytes=9000000-"]);
            assert_eq!(beyond.status, 416);
            let head = proxy.send("HEAD", target, &[]);
            assert_eq!(head.status, 200);
            assert_eq!(head.field("content-length"), Some(&*body.len().to_string()));
        }
    };
    check(&proxy);
    let requested = (origin.count("/known"), origin.count("/unknown"));
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    check(&proxy);
    assert_eq!(
        (origin.count("/known"), origin.count("/unknown")),
        requested
    );
}

/// One lies on the disk alone. The other is in memory too, and after a restart it is sent from its file.
#[test]
fn a_revalidated_entry_is_fresh_after_a_restart_without_a_new_body() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let bodies = [
        ("/large", noise(300_000, 21)),
        ("/small", noise(40_000, 22)),
    ];
    for (target, body) in &bodies {
        let first = Reply::ok(&["Cache-Control: max-age=0", "ETag: \"a\""], body);
        let confirmed = Reply::new(304).with_all(&[
            "Cache-Control: max-age=1000",
            "ETag: \"a\"",
            "X-Confirmed: yes",
        ]);
        origin.on(target).reply(first).reply(confirmed);
    }
    let flags = [
        "--memory",
        "1MiB",
        "--disk",
        &disk_in(&folder),
        "--stale-while-revalidate",
        "0s",
    ];
    let proxy = Proxy::start(&origin, &flags);
    for (target, body) in &bodies {
        assert!(proxy.get(target).body == *body);
    }
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    for (target, body) in &bodies {
        let confirmed = proxy.get(target);
        assert!(confirmed.body == *body, "{target}");
        assert_eq!(confirmed.cache().get("fwd-status"), Some("304"), "{target}");
    }
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    for (target, body) in &bodies {
        let found = proxy.get(target);
        assert_found(&found, "disk", body);
        assert_eq!(found.field("x-confirmed"), Some("yes"), "{target}");
        assert_eq!(origin.count(target), 2, "{target}");
    }
}

#[test]
fn a_large_body_that_breaks_off_is_not_kept() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let body = noise(1_000_000, 3);
    let cut = Reply::new(200)
        .with_all(&["Cache-Control: max-age=1000", "Content-Length: 1000000"])
        .send(&body[..700_000])
        .close();
    origin.on("/page").reply(cut).reply(lasting(&body));
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.ask("/page").try_response().is_err());
    let whole = proxy.get("/page");
    assert!(whole.body == body && !whole.is_hit());
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.get("/page").body == body);
}

#[test]
fn head_is_answered_from_disk() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin.on("/page").reply(lasting("twelve bytes"));
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    proxy.get("/page").assert_is(200, "twelve bytes");
    end(proxy);
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    let head = proxy.send("HEAD", "/page", &[]);
    assert_found(&head, "disk", b"");
    assert_eq!(head.field("content-length"), Some("12"));
    assert_eq!(origin.count("/page"), 1);
}

#[test]
fn a_second_process_on_the_directory_fails() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin.on("/page").reply(lasting("one"));
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    let (reported, code) = refused(&origin, &["--disk", &disk_in(&folder)]);
    assert_eq!(code, Some(1));
    assert!(reported.contains("is in use by"), "{reported}");
    assert!(reported.contains(folder.as_str()), "{reported}");
    proxy.get("/page").assert_is(200, "one");
    // Who is killed leaves nothing locked.
    drop(proxy);
    let proxy = Proxy::start(&origin, &["--disk", &disk_in(&folder)]);
    proxy.get("/page").assert_is(200, "one");
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    fs::write(folder.path(), "a file").unwrap();
    let inside = folder.path().join("inside");
    for path in [folder.as_str(), inside.to_str().unwrap(), "/proc/none"] {
        let (reported, code) = refused(&origin, &["--disk", &format!("{path},1MiB")]);
        assert_eq!(code, Some(1));
        assert!(
            reported.contains(path) && reported.contains("cannot be used"),
            "{reported}"
        );
    }
    fs::remove_file(folder.path()).unwrap();
}

#[test]
fn a_directory_that_vanishes_is_done_without_and_made_anew() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let large = noise(300_000, 5);
    origin.on("/large").reply(lasting(&large));
    for number in 0..500 {
        origin
            .on(&format!("/{number}"))
            .reply(lasting(format!("page {number}")));
    }
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.get("/large").body == large);
    proxy.get("/0").assert_is(200, "page 0");
    // It may be written to at the same time.
    eventually("the directory to vanish", || {
        fs::remove_dir_all(folder.path()).ok()
    });
    assert!(proxy.get("/large").body == large);
    proxy.get("/0").assert_is(200, "page 0");

    let next = AtomicUsize::new(1);
    eventually("the directory to be made anew", || {
        let number = next.fetch_add(1, Ordering::Relaxed) % 500;
        proxy
            .get(&format!("/{number}"))
            .assert_is(200, &format!("page {number}"));
        folder.path().exists().then_some(())
    });
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    assert!(proxy.get("/large").body == large);
    let kept = (0..500)
        .filter(|number| {
            let response = proxy.get(&format!("/{number}"));
            response.assert_is(200, &format!("page {number}"));
            response.is_hit()
        })
        .count();
    assert!(kept > 0, "nothing was written after the directory was back");
}

#[test]
fn files_that_left_are_not_kept_open() {
    const BODY: usize = 200_000;
    let (origin, folder) = (Origin::start(), Folder::absent());
    let disk = disk_in(&folder).replace("64MiB", "4MiB");
    let proxy = Proxy::start(&origin, &["--memory", "1MiB", "--disk", &disk]);
    for number in 0..100 {
        let (path, body) = (format!("/{number}"), noise(BODY, number));
        origin.on(&path).reply(lasting(&body));
        assert!(proxy.get(&path).body == body, "{number}");
        // Again, from the disk if it is there already.
        assert!(proxy.get(&path).body == body, "{number}");
    }
    let removed = || {
        let descriptors = format!("/proc/{}/fd", proxy.pid());
        let open = fs::read_dir(descriptors).expect("a process");
        open.filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .filter(|path| path.to_string_lossy().ends_with("(deleted)"))
            .count()
    };
    eventually("files that were removed to be closed", || {
        (removed() == 0).then_some(())
    });
    // Which of them are still there is up to the tier; it has room for some.
    let only_kept = ["Cache-Control: only-if-cached"];
    eventually("one of them to be found on the disk", || {
        (0..100).find(|number| {
            let found = proxy.get_with(&format!("/{number}"), &only_kept);
            assert!(matches!(found.status, 200 | 504), "{found:?}");
            assert!(found.status == 504 || found.body == noise(BODY, *number));
            found.status == 200
        })
    });
}

#[test]
fn damaged_entries_are_fetched_again() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let bodies: Arc<Vec<Vec<u8>>> = Arc::new(
        (0..40)
            .map(|number| noise(number * 5000, number as u64))
            .collect(),
    );
    for (number, body) in bodies.iter().enumerate() {
        origin.on(&format!("/{number}")).reply(lasting(body));
    }
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let check = |proxy: &Proxy| {
        for (number, body) in bodies.iter().enumerate() {
            // What is cut short is cut short by the close of the connection, and never made up.
            if let Ok(response) = proxy.ask(&format!("/{number}")).try_response() {
                assert_eq!(response.status, 200);
                assert!(response.body == *body, "/{number}");
            }
            let again = eventually("a whole answer", || {
                proxy.ask(&format!("/{number}")).try_response().ok()
            });
            assert!(again.body == *body, "/{number} again");
        }
    };
    let proxy = Proxy::start(&origin, &flags);
    check(&proxy);
    end(proxy);
    for round in 0..6_usize {
        for (number, file) in folder.files().iter().enumerate() {
            damage(file, round, number);
        }
        let proxy = Proxy::start(&origin, &flags);
        check(&proxy);
        end(proxy);
    }
}

#[test]
fn a_large_body_that_is_damaged_breaks_off_once_and_is_fetched_anew() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let body = noise(900_000, 13);
    origin.on("/page").reply(lasting(&body));
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let proxy = Proxy::start(&origin, &flags);
    eventually("a hit", || proxy.get("/page").is_hit().then_some(()));
    end(proxy);
    let file = folder
        .files()
        .into_iter()
        .max_by_key(|file| fs::metadata(file).unwrap().len())
        .expect("the body's file");
    let mut bytes = fs::read(&file).unwrap();
    bytes[500_000] ^= 1;
    overwrite(&file, &bytes);

    let proxy = Proxy::start(&origin, &flags);
    let part = proxy.get_with("/page", &["Range: bytes=0-999"]);
    assert_found(&part, "disk", &body[..1000]);
    assert!(proxy.ask("/page").try_response().is_err());
    let anew = proxy.get("/page");
    assert!(anew.body == body && !anew.is_hit());
    eventually("a hit", || {
        let response = proxy.get("/page");
        assert!(response.body == body);
        response.is_hit().then_some(())
    });
}

/// Such that the change is not visible from outside.
fn overwrite(file: &Path, bytes: &[u8]) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    fs::write(file, bytes).expect("it can be written");
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(modified).expect("it can be set");
}

fn damage(file: &Path, round: usize, number: usize) {
    let mut bytes = fs::read(file).expect("it can be read");
    let at = bytes.len() * ((number * 7 + round) % 100) / 100;
    match round {
        0 => bytes.truncate(at),
        1 | 2 if !bytes.is_empty() => bytes[at] ^= 1 << (number % 8),
        3 => bytes.extend_from_slice(b"more than there was"),
        4 => bytes.clear(),
        _ => bytes.fill(0xff),
    }
    overwrite(file, &bytes);
}

/// After a restart only the disk knows what the url varies on.
#[test]
fn an_answer_without_vary_does_not_answer_the_variants_on_disk() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    origin
        .on("/page")
        .answer(|seen| match seen.field("user-agent") {
            Some("zz") => {
                let reply = Reply::new(404).with("Cache-Control: max-age=1000");
                reply.body("no such language")
            }
            language => lasting_variant(language.unwrap_or("-")),
        });
    let flags = ["--disk", &disk_in(&folder)];
    let get = |proxy: &Proxy, language: &str| {
        proxy.get_with("/page", &[&format!("User-Agent: {language}")])
    };
    let proxy = Proxy::start(&origin, &flags);
    get(&proxy, "en").assert_is(200, "en");
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    get(&proxy, "zz").assert_is(404, "no such language");
    end(proxy);
    let proxy = Proxy::start(&origin, &flags);
    get(&proxy, "fr").assert_is(200, "fr");
    let found = get(&proxy, "en");
    found.assert_hit();
    found.assert_is(200, "en");
    let refused = get(&proxy, "zz");
    refused.assert_hit();
    refused.assert_is(404, "no such language");
}
