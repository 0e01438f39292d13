//! nginx as the application: with gzip it answers `W/"x"`, and confirms that as `"x"`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fetch::place::Place;
use crate::support::{Proxy, eventually, left_out};

const GZIP: &str = "Accept-Encoding: gzip";

/// Serves one page compressed, to be asked about each time.
struct Nginx {
    process: Child,
    port: u16,
    home: PathBuf,
}

impl Nginx {
    /// Nothing if it is not there.
    fn start() -> Option<Self> {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        // Somebody else may take the port in between; it is then tried with another one.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("its address").port();
            drop(free);
            let home = home.join(format!("nginx-{}-{port}", std::process::id()));
            fs::create_dir_all(&home).expect("a directory");
            fs::write(home.join("page.html"), "a page\n".repeat(1000)).expect("a page");
            fs::write(home.join("nginx.conf"), configuration(&home, port)).expect("a file");
            let mut command = Command::new("/usr/sbin/nginx");
            command.arg("-p").arg(&home).args(["-c", "nginx.conf"]);
            command.args(["-e", "error.log"]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let Ok(process) = command.stderr(Stdio::null()).spawn() else {
                left_out("nginx with gzip as an application, which is not installed");
                return None;
            };
            let mut started = Self {
                process,
                port,
                home,
            };
            let is_up = eventually("nginx", || {
                if started.process.try_wait().expect("its state").is_some() {
                    return Some(false);
                }
                TcpStream::connect(("127.0.0.1", port)).ok().map(|_| true)
            });
            if is_up {
                return Some(started);
            }
        }
        panic!("nginx does not start");
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The statuses of its answers so far, of which there are so many.
    fn answers(&self, count: usize) -> Vec<String> {
        eventually("its log", || {
            let log = fs::read_to_string(self.home.join("access.log")).ok()?;
            let statuses: Vec<_> = log.lines().map(str::to_owned).collect();
            (statuses.len() >= count).then_some(statuses)
        })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn configuration(home: &Path, port: u16) -> String {
    let home = home.display();
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
fn what_it_has_compressed_is_confirmed() {
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
