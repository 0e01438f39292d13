//! An application that listens on a Unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

use crate::operators::Operator;
use crate::support::{Folder, Proxy, eventually};

/// Answers every request with its `Host`, for as long as the test runs.
fn serve(path: &str) {
    let listener = UnixListener::bind(path).expect("a new socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                for line in reader.lines() {
                    let Ok(line) = line else { return };
                    if let Some(host) = line.strip_prefix("Host: ") {
                        let length = host.len();
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                        let _ = stream.write_all(format!("{head}{host}").as_bytes());
                    }
                }
            });
        }
    });
}

#[test]
fn pages_come_from_the_socket_and_its_name_is_shown() {
    let folder = Folder::new();
    let socket = folder.file("app.sock");
    // The application may start later.
    let (proxy, admin) = Proxy::operated_by_file(&format!("origin = \"http://unix:{socket}\""));
    assert_eq!(proxy.get("/early").status, 502);
    proxy.output_with(&format!(
        "origin unix:{socket}: cannot connect: there is no socket"
    ));
    serve(&socket);
    let page = eventually("the application", || {
        let page = proxy.get("/");
        (page.status == 200).then_some(page)
    });
    assert!(!page.text().contains("unix"), "the client's host: {page:?}");
    let stats = Operator::at(admin).ask("GET", "/v1/stats", None).text();
    assert!(
        stats.contains(&format!("\"host\":\"unix:{socket}\"")),
        "{stats}"
    );
    let banner = proxy.output();
    assert!(
        banner.contains(&format!("http://unix:{socket}")),
        "{banner}"
    );
}
