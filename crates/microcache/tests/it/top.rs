//! `microcache top` on a real terminal, which tmux lends it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    Events, Folder, Origin, Proxy, Reply, Signal, eventually, free_port, is_installed, signal,
};

/// A terminal of 80 columns and 24 lines, with a shell that runs this.
struct Terminal {
    name: String,
}

impl Terminal {
    fn start(script: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let terminal = Self {
            name: format!("microcache-top-{}-{number}", std::process::id()),
        };
        let size = ["-x", "80", "-y", "24"];
        let begun = [&["new-session", "-d"], &size[..], &[script]].concat();
        assert!(terminal.tmux(&begun).status.success(), "{script}");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        Command::new("tmux")
            .env_remove("TMUX")
            .args(["-f", "/dev/null", "-L", &self.name])
            .args(arguments)
            .output()
            .expect("tmux can be run")
    }

    fn press(&self, key: &str) {
        assert!(self.tmux(&["send-keys", key]).status.success());
    }

    /// What is on it, once this is there.
    fn shows(&self, wanted: &str) -> String {
        let mut last = String::new();
        eventually(wanted, || {
            let shown = self.tmux(&["capture-pane", "-p"]);
            last = String::from_utf8_lossy(&shown.stdout).into_owned();
            last.contains(wanted).then(|| last.clone())
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let shown = self.tmux(&["capture-pane", "-p"]);
        if std::thread::panicking() {
            eprintln!(
                "--- the terminal ---\n{}",
                String::from_utf8_lossy(&shown.stdout)
            );
        }
        self.tmux(&["kill-server"]);
    }
}

fn has_tmux() -> bool {
    is_installed("tmux", "microcache top on a terminal")
}

/// A shell's line that runs it, and says afterwards how it ended and how the terminal was left.
fn script(arguments: &str, pid: &str) -> String {
    let binary = env!("CARGO_BIN_EXE_microcache");
    format!(
        "sh -c 'echo $$ >{pid}; exec {binary} top {arguments}'; \
         echo \"ended with $?\"; stty -a | grep -o -E -- '-?\\bicanon'; exec cat"
    )
}

/// The terminal is as it was: lines are lines again, and what was drawn is gone.
fn check_restored(terminal: &Terminal, code: i32) {
    let shown = terminal.shows(&format!("ended with {code}"));
    assert!(!shown.contains("busiest urls"), "{shown}");
    let shown = terminal.shows("icanon");
    assert!(!shown.contains("-icanon"), "{shown}");
}

fn cached() -> Origin {
    let origin = Origin::start();
    for target in ["/", "/news"] {
        origin
            .on(target)
            .reply(Reply::ok(&["Cache-Control: max-age=600"], "page"));
    }
    origin
}

#[test]
fn it_ends_with_its_terminal() {
    if !has_tmux() {
        return;
    }
    let origin = cached();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    for hangup in ["", "trap \"\" HUP; "] {
        let folder = Folder::new();
        let pid = folder.file("pid");
        let line = script(&format!("--admin {admin}"), &pid);
        let line = line.replacen("exec ", &format!("{hangup}exec "), 1);
        let terminal = Terminal::start(&line);
        terminal.shows("busiest urls");
        let number = fs::read_to_string(&pid).expect("it runs");
        terminal.tmux(&["kill-server"]);
        let process = Path::new("/proc").join(number.trim());
        eventually("it has ended", || (!process.exists()).then_some(()));
    }
}

#[test]
fn it_shows_the_server_and_purges_the_marked_url_and_leaves_the_terminal_as_it_was() {
    if !has_tmux() {
        return;
    }
    let origin = cached();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    for _ in 0..3 {
        proxy.get("/news").assert_is(200, "page");
    }
    let folder = Folder::new();
    let pid = folder.file("pid");
    let terminal = Terminal::start(&script(&format!("--admin {admin}"), &pid));
    terminal.shows("http://example.com/news");
    terminal.shows("no requests");
    terminal.press("/");
    terminal.press("n");
    terminal.shows("filter: n");
    terminal.press("Enter");
    terminal.press("p");
    terminal.shows("purge?");
    terminal.press("n");
    terminal.shows("nothing was purged");
    proxy.get("/news").assert_hit();
    terminal.press("p");
    terminal.shows("purge?");
    terminal.press("y");
    terminal.shows("purged http://example.com/news");
    proxy.get("/news").assert_is(200, "page");
    assert_eq!(origin.count("/news"), 2);
    terminal.press("Escape");
    terminal.shows("busiest urls");
    terminal.press("Tab");
    terminal.shows("routes, p50");
    let routes = terminal.shows("default");
    assert!(routes.contains("Tab errors, nodes, urls"), "{routes}");
    terminal.press("e");
    terminal.shows("no recent errors");
    terminal.press("n");
    terminal.shows("this node");
    terminal.press("u");
    terminal.shows("busiest urls");
    terminal.press("q");
    check_restored(&terminal, 0);
}

#[test]
fn documents_and_subscribers_have_a_line_where_there_are_any() {
    if !has_tmux() {
        return;
    }
    let origin = cached();
    let documents = ["--push", "/live/", "--push-directory", "none"];
    for (flags, has_line) in [(&documents[..], true), (&[], false)] {
        let (proxy, admin) = Proxy::operated(&origin, flags);
        let folder = Folder::new();
        let pid = folder.file("pid");
        let terminal = Terminal::start(&script(&format!("--admin {admin}"), &pid));
        let shown = if has_line {
            let _events = Events::begin(proxy.ask_with("/live/x", &["Accept: text/event-stream"]));
            terminal.shows("1 subscriber  events ")
        } else {
            terminal.shows("busiest urls")
        };
        let line = shown.lines().find(|line| line.starts_with("push "));
        assert_eq!(line.is_some(), has_line, "{shown}");
    }
}

#[test]
fn signals_and_ctrl_c_give_the_terminal_back() {
    if !has_tmux() {
        return;
    }
    let origin = cached();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    for how in [None, Some(Signal::INT), Some(Signal::TERM)] {
        let folder = Folder::new();
        let pid = folder.file("pid");
        let terminal = Terminal::start(&script(&format!("--admin {admin}"), &pid));
        terminal.shows("memory");
        match how {
            None => terminal.press("C-c"),
            Some(how) => {
                let pid = fs::read_to_string(&pid).expect("a pid");
                signal(pid.trim().parse().expect("a number"), how);
            }
        }
        check_restored(&terminal, 130);
    }
}

#[test]
fn an_unreachable_server_is_reported_before_and_during_the_view() {
    if !has_tmux() {
        return;
    }
    let address = format!("127.0.0.1:{}", free_port());
    let folder = Folder::new();
    let pid = folder.file("pid");
    let terminal = Terminal::start(&script(&format!("--admin {address}"), &pid));
    let shown = terminal.shows("ended with 1");
    assert!(shown.contains("cannot reach"), "{shown}");
    let origin = cached();
    let (mut proxy, admin) = Proxy::operated(&origin, &[]);
    let terminal = Terminal::start(&script(&format!("--admin {admin}"), &pid));
    terminal.shows("memory");
    proxy.terminate();
    proxy.wait();
    terminal.shows("connection lost, retrying");
    terminal.press("q");
    check_restored(&terminal, 0);
}

#[test]
fn without_a_terminal_it_names_the_alternative() {
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .arg("top")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("microcache stats"), "{reported}");
}
