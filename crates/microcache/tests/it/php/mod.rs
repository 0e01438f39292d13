//! A PHP application behind php-fpm, without a web server between.

pub(crate) mod fpm;

use std::fs;
use std::io::Write as _;

use crate::support::{Client, eventually, request};
use fpm::Fpm;

/// Prints the variables that are asked for, one a line.
const VARIABLES: &str = r#"<?php
header('Content-Type: text/plain');
header('Cache-Control: no-store');
foreach (explode(',', $_GET['names'] ?? 'SCRIPT_NAME,PATH_INFO,REQUEST_URI') as $name) {
    echo $name, '=', $_SERVER[$name] ?? '-', "\n";
}
"#;

const HOST: &str = "Host: shop.example\r\n";

#[test]
fn pages_are_run_and_kept() {
    let Some(fpm) = Fpm::start() else { return };
    let page = r#"<?php header('Cache-Control: max-age=1000'); echo "Hello from ", PHP_SAPI;"#;
    fpm.site.write("index.php", page);
    let proxy = fpm.proxy(&[]);
    let first = proxy.get("/");
    first.assert_is(200, "Hello from fpm-fcgi");
    assert_eq!(first.field("status"), None, "{first:?}");
    proxy.get("/").assert_hit();
    proxy.send("HEAD", "/", &[]).assert_is(200, "");
}

#[test]
fn paths_name_a_script_or_go_to_the_index() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write("index.php", VARIABLES);
    fs::create_dir_all(fpm.site.path().join("wp-content/uploads")).expect("a folder");
    fs::create_dir(fpm.site.path().join("wp-admin")).expect("a folder");
    fpm.site.write("wp-admin/index.php", VARIABLES);
    fpm.site.write("info.php", VARIABLES);
    fpm.site.write("x.jpg", "<?php echo 'run';");
    fpm.site.write("dump.sql", "secret");
    fpm.site
        .write("wp-content/uploads/shell.php", "<?php echo 'run';");
    fs::create_dir_all(fpm.site.path().join("images/deleted")).expect("a folder");
    fpm.site.write("images/deleted/.htaccess", "Deny from all");
    fpm.site.write("images/deleted/x.png", "run");
    let proxy = fpm.proxy(&[]);
    let run = |target: &str, expected: [&str; 3]| {
        let [name, info, uri] = expected;
        let expected = format!("SCRIPT_NAME={name}\nPATH_INFO={info}\nREQUEST_URI={uri}\n");
        proxy.get(target).assert_is(200, &expected);
    };
    run("/2024/hello/", ["/index.php", "-", "/2024/hello/"]);
    run(
        "/info.php/a/b%20c",
        ["/info.php", "/a/b c", "/info.php/a/b%20c"],
    );
    run("/wp-admin/", ["/wp-admin/index.php", "-", "/wp-admin/"]);
    run("/dump.sql", ["/index.php", "-", "/dump.sql"]);
    proxy.get("/x.jpg").assert_is(200, "<?php echo 'run';");
    for (target, status) in [
        ("/missing.php", 404),
        ("/x.jpg/y.php", 404),
        ("/info.php%00.jpg", 404),
        ("/wp-content/uploads/shell.php", 403),
        ("/wp-content/uploads/shell.php/x.jpg", 403),
        ("/images/deleted/x.png", 403),
        ("/wp-admin", 301),
    ] {
        let answer = proxy.get(target);
        assert!(!answer.text().contains("run"), "{target}: {answer:?}");
        // A path with NUL may be refused before.
        assert!(
            answer.status == status || answer.status == 400 && target.contains("%00"),
            "{target}: {answer:?}"
        );
    }
}

#[test]
fn variables_are_those_of_the_request() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write("index.php", VARIABLES);
    let proxy = fpm.proxy(&[]);
    let names = "HTTP_PROXY,HTTP_HOST,HTTP_X_FOO,REMOTE_ADDR,SERVER_NAME,HTTPS,SERVER_PROTOCOL,HTTP_COOKIE,SERVER_SOFTWARE,HTTP_X_FORWARDED_PROTO";
    let target = format!("/?names={names}");
    let fields = [
        "Proxy: http://evil.example/",
        "X_Foo: underscore",
        "X-Foo: dash",
        "X-Forwarded-For: 6.6.6.6",
        "Cookie: a=b",
    ];
    let answer = proxy.get_with(&target, &fields);
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = answer.text();
    for line in [
        "HTTP_PROXY=-",
        "HTTP_X_FOO=dash",
        "REMOTE_ADDR=127.0.0.1",
        "HTTPS=-",
        "SERVER_PROTOCOL=HTTP/1.1",
        "HTTP_COOKIE=a=b",
        "SERVER_SOFTWARE=microcache (like nginx)",
        "HTTP_X_FORWARDED_PROTO=-",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
    let trusted = fpm.proxy(&["--trusted-proxies", "127.0.0.1"]);
    let fields = [
        "X-Forwarded-For: 6.6.6.6, 192.0.2.7",
        "X-Forwarded-Proto: https",
    ];
    let text = trusted.get_with(&target, &fields).text();
    for line in ["REMOTE_ADDR=192.0.2.7", "HTTPS=on"] {
        assert!(text.lines().any(|it| it == line), "{line}: {text}");
    }
}

#[test]
fn uploads_arrive_whole() {
    let Some(fpm) = Fpm::start() else { return };
    let script = r"<?php
        $body = file_get_contents('php://input');
        echo $_SERVER['CONTENT_LENGTH'] ?? '-', ' ', strlen($body), ' ', md5($body);";
    fpm.site.write("index.php", script);
    let proxy = fpm.proxy(&[]);
    let large: Vec<u8> = (0..20 << 20).map(|at: u32| (at % 251) as u8).collect();
    let mut client = proxy.connect();
    let length = large.len();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n"
    ));
    client.send(&large);
    let answer = client.response();
    let expected = format!("{length} {length} ");
    assert!(
        answer.status == 200 && answer.text().starts_with(&expected),
        "{answer:?}"
    );
    // One without a length is read ahead, if it is not too large.
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    ));
    client
        .response()
        .assert_is(200, "5 5 5d41402abc4b2a76b9719d911017c592");
    let mut chunked =
        format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    write!(chunked, "{:x}\r\n", 1 << 20).expect("memory");
    chunked.extend(vec![b'x'; 1 << 20]);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let mut client = proxy.connect();
    client.try_send(&chunked);
    assert_eq!(client.response().status, 411);
    // A 100 (Continue) does not depend on php-fpm.
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    ));
    assert_eq!(client.head().start, "HTTP/1.1 100 Continue");
    client.send("hello");
    client
        .response()
        .assert_is(200, "5 5 5d41402abc4b2a76b9719d911017c592");
}

#[test]
fn status_and_location_are_those_of_the_script() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site
        .write("gone.php", "<?php http_response_code(410); echo 'gone';");
    fpm.site
        .write("moved.php", "<?php header('Location: /new', true, 301);");
    fpm.site
        .write("found.php", "<?php header('Location: /new');");
    fpm.site
        .write("empty.php", "<?php http_response_code(204);");
    let body = "<?php header('Content-Length: 5'); echo 'hello';";
    fpm.site.write("length.php", body);
    let proxy = fpm.proxy(&[]);
    proxy.get("/gone.php").assert_is(410, "gone");
    for (target, status) in [("/moved.php", 301), ("/found.php", 302)] {
        let answer = proxy.get(target);
        let location = answer.field("location").map(str::to_owned);
        assert_eq!((answer.status, location), (status, Some("/new".to_owned())));
    }
    proxy.get("/empty.php").assert_is(204, "");
    proxy.get("/length.php").assert_is(200, "hello");
}

#[test]
fn large_pages_are_streamed() {
    let Some(fpm) = Fpm::start() else { return };
    let script = "<?php for ($i = 0; $i < 1000; $i++) echo str_repeat(chr(97 + $i % 26), 4096);";
    fpm.site.write("index.php", script);
    let proxy = fpm.proxy(&[]);
    let expected: String = (0..1000_u32)
        .map(|i| char::from(b'a' + (i % 26) as u8).to_string().repeat(4096))
        .collect();
    let answer = proxy.get("/");
    assert!(answer.status == 200 && answer.text() == expected);
}

#[test]
fn a_slow_script_is_given_up() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write("slow.php", "<?php sleep(600);");
    fpm.site.write("index.php", "<?php echo 'quick';");
    let proxy = fpm.proxy(&["--first-byte-timeout", "200ms"]);
    assert_eq!(proxy.get("/slow.php").status, 504);
    // Of two workers, the other one answers.
    proxy.get("/").assert_is(200, "quick");
}

#[test]
fn a_worker_that_dies_in_mid_answer_truncates_it() {
    let Some(fpm) = Fpm::start() else { return };
    let script = "<?php header('Cache-Control: max-age=1000'); echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);";
    let early = "<?php posix_kill(getmypid(), 9);";
    fpm.site.write(
        "dies.php",
        script.replace("posix_kill(getmypid(), 9)", KILL),
    );
    fpm.site.write(
        "early.php",
        early.replace("posix_kill(getmypid(), 9)", KILL),
    );
    fpm.site.write("index.php", "<?php echo 'alive';");
    let proxy = fpm.proxy(&[]);
    assert_eq!(proxy.get("/early.php").status, 502);
    for _ in 0..2 {
        let mut client = Client::connect(proxy.address());
        client.send(request("GET", "/dies.php", &[]));
        assert!(client.try_response().is_err(), "it is not complete");
    }
    eventually("another worker", || {
        (proxy.get("/").text() == "alive").then_some(())
    });
}

/// Kills the worker. The extension for signals may be missing.
const KILL: &str = "exec('kill -9 ' . getmypid())";

#[test]
fn errors_go_to_the_log() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write(
        "index.php",
        "<?php error_log('the disk of the shop is full'); echo 'ok';",
    );
    fpm.site.write("fatal.php", "<?php undefined_function();");
    let proxy = fpm.proxy(&[]);
    proxy.get("/").assert_is(200, "ok");
    proxy.output_with("the disk of the shop is full");
    assert_eq!(proxy.get("/fatal.php").status, 500);
    proxy.output_with("undefined_function");
}

#[test]
fn connections_can_be_kept() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write(
        "index.php",
        "<?php header('Cache-Control: no-store'); echo $_SERVER['QUERY_STRING'];",
    );
    let proxy = fpm.proxy(&[
        "--fastcgi-keep-alive",
        "--max-concurrent",
        "1",
        "--threads",
        "1",
    ]);
    for number in 0..20 {
        proxy
            .get(&format!("/?{number}"))
            .assert_is(200, &number.to_string());
    }
    let mut client = proxy.connect();
    client.send(format!(
        "POST /?post HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello"
    ));
    client.response().assert_is(200, "post");
}

#[test]
fn a_file_configures_the_same() {
    let Some(fpm) = Fpm::start() else { return };
    fpm.site.write("index.php", "<?php echo 'by file';");
    let (url, root) = (fpm.url(), fpm.site.as_str().to_owned());
    let proxy = crate::support::Proxy::with_config(&format!(
        "[upstreams.php]\nservers = [\"{url}\"]\nphp_root = \"{root}\"\nmax_concurrent = 2\n\
         health_check = {{ path = \"/ping\", interval = \"100ms\", timeout = \"100ms\" }}\n"
    ));
    proxy.get("/").assert_is(200, "by file");
    let none = crate::support::Proxy::refusal(&[&url]);
    assert!(none.1.contains("php_root"), "{none:?}");
}

#[test]
fn a_stopped_server_is_an_error_with_a_reason() {
    let Some(mut fpm) = Fpm::start() else { return };
    fpm.site.write("index.php", "<?php echo 'up';");
    let proxy = fpm.proxy(&[]);
    fpm.stop();
    let answer = eventually("it has ended", || {
        let answer = proxy.get("/");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(answer.status, 502);
    proxy.output_with("cannot connect");
}
