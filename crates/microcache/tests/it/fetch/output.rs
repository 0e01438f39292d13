//! Output on both streams and into files, and exit codes.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::process::Command;

use super::origin_with_page;
use super::place::{Place, printed};
use crate::support::{Origin, Reply, eventually};

#[test]
fn errors_are_exit_codes() {
    let origin = Origin::start();
    origin
        .on("/none")
        .reply(Reply::new(404).body("no such page"));
    origin.on("/fails").reply(Reply::new(503).body("not now"));
    let strange = Reply::raw("HTTP/1.1 600 Strange\r\nContent-Length: 7\r\n\r\nstrange");
    origin.on("/strange").reply(strange);
    origin.on("/breaks").reply(
        Reply::new(200)
            .with_all(&["Cache-Control: max-age=600", "Content-Length: 100"])
            .send("half")
            .close(),
    );
    origin.on("/silent").reply(Reply::silence());
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    let file = place.path("file");
    let name = file.to_str().expect("a path");
    fs::write(&file, "before").expect("written");
    for (target, code, says) in [
        (
            "/none",
            4,
            "answered 404 Not Found; --no-fail prints its body",
        ),
        ("/fails", 4, "answered 503"),
        ("/strange", 4, "answered 600"),
        ("/breaks", 1, "was truncated"),
    ] {
        let run = place.run(&["-o", name, &url(target)]);
        assert_eq!(
            (run.code, run.out.as_str()),
            (code, ""),
            "{target}: {}",
            run.err
        );
        assert!(run.err.contains(says), "{target}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
    }
    assert_eq!(
        fs::read_dir(place.folder()).expect("it is there").count(),
        2,
        "the file and the cache"
    );
    let printed = place.run(&["--no-fail", &url("/none")]);
    assert_eq!((printed.code, printed.out.as_str()), (0, "no such page"));
    assert_eq!(place.run(&["-f", &url("/none")]).code, 4);
    let late = place.run(&["--timeout", "200ms", &url("/silent")]);
    assert_eq!(late.code, 1);
    assert!(late.err.contains("--timeout"), "{}", late.err);
    let unknown = place.run(&["http://127.0.0.1:1/"]);
    assert_eq!(unknown.code, 1);
    assert!(unknown.err.contains("refused"), "{}", unknown.err);
    for bad in [
        &["--offline", "--reload", "http://a/"][..],
        &["a.example"],
        &[],
    ] {
        let run = place.run(bad);
        assert_eq!(
            (run.code, run.err.lines().count()),
            (2, 1),
            "{bad:?}: {}",
            run.err
        );
    }
    let nowhere = place.run(&["-o", "/does/not/exist", &url("/none"), "--no-fail"]);
    assert_eq!(nowhere.code, 5);
    assert!(nowhere.err.contains("/does/not/exist"), "{}", nowhere.err);
}

#[test]
fn files_are_replaced_when_complete_and_devices_are_written_to() {
    let origin = origin_with_page();
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let (file, link) = (place.path("file"), place.path("link"));
    symlink(&file, &link).expect("a link");
    fs::write(&file, "before").expect("written");
    let run = place.run(&["-o", link.to_str().expect("a path"), &url]);
    assert_eq!((run.code, run.out.as_str()), (0, ""), "{}", run.err);
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "the page");
    assert_eq!(place.run(&["-o", "/dev/null", &url]).code, 0);
    let null = fs::metadata("/dev/null").expect("it is there");
    assert!(null.file_type().is_char_device());
    assert_eq!(place.run(&["-o", "-", &url]).out, "the page");
}

#[test]
fn files_keep_their_permissions_and_link_loops_are_left_alone() {
    let origin = origin_with_page();
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let long = "x".repeat(255);
    for name in ["secret", &long] {
        let file = place.path(name);
        fs::write(&file, "before").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let run = place.run(&["-o", name, &url]);
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "the page");
        let mode = fs::metadata(&file)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let circle = place.path("circle");
    symlink("circle", &circle).expect("a link");
    let run = place.run(&["-o", "circle", &url]);
    assert_eq!(run.code, 5, "{}", run.err);
    assert!(run.err.contains("cannot write to circle: "), "{}", run.err);
    assert!(circle.is_symlink());
}

#[test]
fn the_draft_of_a_killed_command_is_removed() {
    let origin = Origin::start();
    origin.on("/page").reply(Reply::new(200).body("the page"));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let fetch = place.command(&["-o", "file", &url]);
    // What the shell becomes has its number.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "echo half > file.$$.part; exec \"$@\"", "sh"])
        .arg(fetch.get_program())
        .args(fetch.get_args())
        .env("no_proxy", "*")
        .current_dir(place.folder());
    let run = printed(shell.output().expect("it runs"));
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let file = fs::read_to_string(place.path("file")).expect("it is there");
    assert_eq!(file, "the page");
}

#[test]
fn a_pipe_without_a_reader_is_waited_for_as_long_as_is_allowed() {
    let origin = Origin::start();
    origin.on("/page").reply(Reply::new(200).body("the page"));
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("pipe")).status();
    assert!(made.expect("it runs").success());
    let url = format!("{}/page", origin.url());
    let mut child = place.start(&["--timeout", "300ms", "-o", "pipe", &url]);
    let ended = eventually("the end", || child.try_wait().expect("a child"));
    assert_eq!(ended.code(), Some(1));
}

#[test]
fn a_redirection_that_leads_nowhere_is_an_error() {
    let origin = Origin::start();
    let to = |place: &str| Reply::new(302).with(&format!("Location: {place}"));
    origin.on("/loop").reply(to("/loop").body("round"));
    origin.on("/bad").reply(to("http://[").body("no url"));
    // A choice without a target.
    origin.on("/multiple").reply(Reply::new(300).body("both"));
    let place = Place::new();
    let url = |target: &str| format!("{}{target}", origin.url());
    let file = place.path("file");
    fs::write(&file, "before").expect("written");
    for (target, body) in [("/loop", "round"), ("/bad", "no url")] {
        let run = place.run(&["-o", "file", &url(target)]);
        assert_eq!((run.code, run.err.lines().count()), (4, 1), "{}", run.err);
        assert!(run.err.contains("is not followed"), "{}", run.err);
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
        let printed = place.run(&["--no-fail", &url(target)]);
        assert_eq!((printed.code, printed.out.as_str()), (0, body));
    }
    let both = place.run(&[&url("/multiple")]);
    assert_eq!((both.code, both.out.as_str()), (0, "both"));
}

#[test]
fn a_304_or_an_unwanted_range_replaces_no_file() {
    let origin = Origin::start();
    origin
        .on("/page")
        .reply(Reply::new(304).with("ETag: \"a\""));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let file = place.path("file");
    fs::write(&file, "before").expect("written");
    let condition = ["-H", "If-None-Match: \"a\"", "-o", "file", &url];
    let same = place.run(&condition);
    assert_eq!((same.code, same.err.as_str()), (0, ""));
    for flags in [&[][..], &["--no-store"]] {
        let run = place.run(&[flags, &["-o", "file", &url]].concat());
        assert_eq!(run.code, 1, "{}", run.err);
        assert!(run.err.contains("304"), "{}", run.err);
    }
    let other =
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    origin.on("/other").reply(other);
    let other = place.run(&["-o", "file", &format!("{}/other", origin.url())]);
    assert_eq!(other.code, 1, "{}", other.err);
    let part = Reply::new(206).with("Content-Range: bytes 0-3/8");
    origin.on("/part").reply(part.body("half"));
    let part = place.run(&["-o", "file", &format!("{}/part", origin.url())]);
    assert_eq!(part.code, 1, "{}", part.err);
    assert!(part.err.contains("206"), "{}", part.err);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "before");
    let head = place.run(&["-i", "-H", "If-None-Match: \"a\"", &url]);
    assert!(head.out.starts_with("HTTP/1.1 304"), "{}", head.out);
}

#[test]
fn the_head_is_printed_on_demand_and_is_stored_too() {
    let origin = Origin::start();
    let page = Reply::new(200).with_all(&["Cache-Control: max-age=600", "X-Test: yes"]);
    origin.on("/page").reply(page.body("the page"));
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    let included = place.run(&["-i", &url]);
    assert!(
        included.out.starts_with("HTTP/1.1 200 OK\r\n"),
        "{}",
        included.out
    );
    assert!(
        included.out.contains("\r\nx-test: yes\r\n"),
        "{}",
        included.out
    );
    assert!(
        included.out.ends_with("\r\n\r\nthe page"),
        "{}",
        included.out
    );
    let head = place.run(&["--head", "--explain", &url]);
    assert!(head.out.contains("\r\nage: "), "{}", head.out);
    assert!(head.out.ends_with("\r\n\r\n"), "{}", head.out);
    assert!(head.err.contains("hit: "), "{}", head.err);
    assert_eq!(origin.count("/page"), 1);
    let anew = place.run(&["-I", "--no-cache", &url]);
    assert!(anew.out.ends_with("\r\n\r\n"), "{}", anew.out);
    assert_eq!(origin.seen("/page")[1].method, "HEAD");
    let part = place.run(&["-H", "Range: bytes=4-", &url]);
    assert_eq!((part.code, part.out.as_str()), (0, "page"));
    assert_eq!(origin.count("/page"), 2);
}

#[test]
fn identities_do_not_share_responses() {
    let origin = Origin::start();
    origin.on("/mine").answer(|seen| {
        let who = seen.field("authorization").unwrap_or("nobody").to_owned();
        Reply::ok(&["Cache-Control: private, max-age=600"], who)
    });
    let place = Place::new();
    let url = format!("{}/mine", origin.url());
    for _ in 0..2 {
        for who in ["Bearer a", "Bearer b"] {
            let field = format!("Authorization: {who}");
            assert_eq!(place.run(&["-H", &field, &url]).out, who);
        }
        assert_eq!(place.run(&[&url]).out, "nobody");
    }
    assert_eq!(origin.count("/mine"), 3);
    let agent = origin.seen("/mine")[0]
        .field("user-agent")
        .map(str::to_owned);
    assert!(agent.is_some_and(|agent| agent.starts_with("microcache/")));
}

#[test]
fn custom_identity_fields_separate_responses() {
    let origin = Origin::start();
    origin.on("/mine").answer(|seen| {
        let who = ["cookie", "private-token"].iter();
        let who = who.filter_map(|name| seen.field(name)).collect::<String>();
        Reply::ok(&["Cache-Control: private, max-age=600"], who)
    });
    let place = Place::new();
    let url = format!("{}/mine", origin.url());
    for _ in 0..2 {
        for (name, who) in [("Cookie", "a"), ("Cookie", "b"), ("Private-Token", "c")] {
            let field = format!("{name}: {who}");
            assert_eq!(place.run(&["-H", &field, &url]).out, who);
        }
        // What is wanted, and who sends it, are two things.
        let plain = place.run(&["-H", "Accept: text/html", &url]);
        assert_eq!(plain.out, place.run(&[&url]).out);
        assert_eq!(plain.out, "");
    }
    assert_eq!(origin.count("/mine"), 4);
    for name in place.files().iter().filter(|name| name.len() == 32) {
        let home = place.cache().join("microcache-shared-v1");
        let record = fs::read(home.join(&name[..2]).join(name)).expect("it is there");
        assert!(
            !record
                .windows(13)
                .any(|part| part.eq_ignore_ascii_case(b"private-token")),
            "{name}"
        );
    }
}

#[test]
fn a_password_in_a_url_is_sent_and_not_printed() {
    let origin = Origin::start();
    origin.on("/page").answer(|seen| {
        let who = seen.field("authorization").unwrap_or("nobody").to_owned();
        Reply::new(200).with("Cache-Control: max-age=600").body(who)
    });
    origin.on("/breaks").reply(
        Reply::new(200)
            .with("Content-Length: 100")
            .send("half")
            .close(),
    );
    origin.on("/silent").reply(Reply::silence());
    let there = format!(
        "Location: {}/there",
        origin.url().replace("//", "//other:hush@")
    );
    origin.on("/away").reply(Reply::new(302).with(&there));
    origin.on("/there").reply(Reply::new(200).body("there"));
    let place = Place::new();
    let site = origin.url().replace("http://", "http://user:hush@");
    let url = |target: &str| format!("{site}{target}#part");
    for outcome in ["miss: ", "hit: "] {
        let run = place.run(&["--explain", &url("/page")]);
        assert_eq!(run.out, "Basic dXNlcjpodXNo");
        assert!(run.err.contains(outcome), "{}", run.err);
        assert!(!run.err.contains("redirected"), "{}", run.err);
    }
    let away = place.run(&["--explain", &url("/away")]);
    assert!(away.err.contains("/there"), "{}", away.err);
    assert!(!away.err.contains("hush"), "{}", away.err);
    for (flags, target) in [
        (&["--offline"][..], "/never"),
        (&["--timeout", "100ms"], "/silent"),
        (&[], "/breaks"),
        (&[], "/none"),
    ] {
        let run = place.run(&[flags, &[&url(target)]].concat());
        assert!(run.code > 0 && run.err.contains(target), "{}", run.err);
        assert!(!run.err.contains("hush"), "{}", run.err);
    }
    origin.stop();
    let unreached = place.run(&[&url("/other")]);
    assert!(unreached.err.contains("/other"), "{}", unreached.err);
    assert!(!unreached.err.contains("hush"), "{}", unreached.err);
}

#[test]
fn an_acceptable_stale_response_needs_no_server() {
    let origin = Origin::start();
    let page = Reply::new(200).with("Cache-Control: max-age=0, stale-while-revalidate=600");
    origin
        .on("/page")
        .reply(page.body("the page"))
        .reply(Reply::silence());
    let place = Place::new();
    let url = format!("{}/page", origin.url());
    assert_eq!(place.run(&[&url]).out, "the page");
    let stale = place.run(&["--timeout", "1s", &url]);
    assert_eq!(
        (stale.code, stale.out.as_str(), stale.err.as_str()),
        (0, "the page", "")
    );
    assert_eq!(origin.count("/page"), 2, "it is being renewed");
}

#[test]
fn a_closed_pipe_ends_the_command() {
    let origin = Origin::start();
    origin.on("/flood").reply(
        Reply::new(200)
            .with("Content-Length: 1000000000")
            .flood(1_000_000_000)
            .close(),
    );
    let place = Place::new();
    let mut child = place.start(&[&format!("{}/flood", origin.url())]);
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut [0; 10]).expect("it is printed");
    drop(out);
    let ended = printed(child.wait_with_output().expect("it ends"));
    assert_eq!((ended.code, ended.err.as_str()), (5, ""));
}

#[test]
fn standard_output_by_its_name_is_not_replaced() {
    let origin = Origin::start();
    origin.on("/page").reply(Reply::new(200).body("the page"));
    let place = Place::new();
    let file = place.path("all");
    std::fs::write(&file, "before ").expect("written");
    let appended = std::fs::OpenOptions::new().append(true).open(&file);
    let url = format!("{}/page", origin.url());
    let mut command = place.command(&["-sL", "-o", "/dev/stdout", &url]);
    let status = command.stdout(appended.expect("a file")).status();
    assert!(status.expect("it runs").success());
    let all = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(all, "before the page");
}
