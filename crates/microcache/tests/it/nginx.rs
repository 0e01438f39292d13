//! nginx as the application: with gzip it answers `W/"x"`, and confirms that as `"x"`.

use std::fs;
use std::process::{Command, Stdio};

use crate::fetch::place::Place;
use crate::support::{Folder, Process, Proxy, eventually, free_port, left_out};

const GZIP: &str = "Accept-Encoding: gzip";

/// Serves one page compressed, to be asked about each time.
struct Nginx {
    _process: Process,
    port: u16,
    home: Folder,
}

impl Nginx {
    /// Nothing if it is not there.
    fn start() -> Option<Self> {
        let (home, port) = (Folder::new(), free_port());
        home.write("page.html", "a page\n".repeat(1000));
        home.write("nginx.conf", configuration(&home, port));
        let mut command = Command::new("/usr/sbin/nginx");
        command.args(["-p", home.as_str(), "-c", "nginx.conf", "-e", "error.log"]);
        let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
            left_out("nginx with gzip as an application, which is not installed");
            return None;
        };
        process.listens(port);
        Some(Self {
            _process: process,
            port,
            home,
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The statuses of its answers so far, of which there are so many.
    fn answers(&self, count: usize) -> Vec<String> {
        eventually("its log", || {
            let log = fs::read_to_string(self.home.file("access.log")).ok()?;
            let statuses: Vec<_> = log.lines().map(str::to_owned).collect();
            (statuses.len() >= count).then_some(statuses)
        })
    }
}

fn configuration(home: &Folder, port: u16) -> String {
    let home = home.as_str();
    format!(
        "daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;
         events {{}}
         http {{
             types {{ text/html html; }}
             gzip on;
             gzip_proxied any;
             log_format status $status;
             access_log {home}/access.log status;
             client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
             fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
             server {{
                 listen 127.0.0.1:{port};
                 root {home};
                 add_header Cache-Control no-cache always;
             }}
         }}"
    )
}

#[test]
fn compressed_responses_are_revalidated() {
    let Some(nginx) = Nginx::start() else { return };
    let proxy = Proxy::before_url(&nginx.url(), &[]);
    let first = proxy.get_with("/page.html", &[GZIP]);
    assert_eq!(first.field("content-encoding"), Some("gzip"), "{first:?}");
    let tag = first.field("etag").expect("a tag").to_owned();
    assert!(tag.starts_with("W/"), "{tag}");
    for _ in 0..2 {
        let again = proxy.get_with("/page.html", &[GZIP]);
        assert_eq!(again.cache().get("fwd-status"), Some("304"), "{again:?}");
        assert_eq!(
            (&again.body, again.field("etag")),
            (&first.body, Some(&*tag))
        );
        assert_eq!(again.field("content-encoding"), Some("gzip"));
    }
    assert_eq!(nginx.answers(3), ["200", "304", "304"]);
}

#[test]
fn fetch_has_it_confirmed() {
    let Some(nginx) = Nginx::start() else { return };
    let place = Place::new();
    let url = format!("{}/page.html", nginx.url());
    let mut pages = Vec::new();
    for _ in 0..2 {
        let mut command = place.command(&["-H", GZIP, &url]);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        pages.push(output.stdout);
    }
    assert!(pages[0].starts_with(b"\x1f\x8b") && pages[0] == pages[1]);
    assert_eq!(nginx.answers(2), ["200", "304"]);
}
