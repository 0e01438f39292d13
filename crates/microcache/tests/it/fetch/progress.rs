//! Progress, on a terminal that `script` lends.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::place::Place;
use crate::support::{Gate, Origin, Reply, eventually};

/// A command on a terminal of 80 columns, and what that shows.
struct OnTerminal {
    child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl OnTerminal {
    fn start(place: &Place, arguments: &str) -> Self {
        let fetch = place.command(&[]);
        let words = fetch.get_args().map(|word| word.to_str().expect("text"));
        let words: Vec<_> = words.collect();
        let line = format!(
            "stty cols 80 rows 24; exec {} {} {arguments}",
            env!("CARGO_BIN_EXE_microcache"),
            words.join(" ")
        );
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("no_proxy", "*")
            .current_dir(place.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script can be run");
        let mut out = child.stdout.take().expect("a pipe");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&shown);
        let reader = thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(read @ 1..) = out.read(&mut piece) {
                kept.lock().unwrap().extend_from_slice(&piece[..read]);
            }
        });
        Self {
            child,
            shown,
            reader,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn shows(&self, wanted: &str) {
        eventually(wanted, || self.shown().contains(wanted).then_some(()));
    }

    /// How it ended, and all that was shown.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("it ends").code();
        self.reader.join().expect("it reads");
        let shown = self.shown.lock().unwrap();
        (code, String::from_utf8_lossy(&shown).into_owned())
    }
}

/// One with a page that comes in halves.
fn halves(gate: &Gate) -> (Origin, String) {
    let origin = Origin::start();
    for (target, length) in [("/known", true), ("/unknown", false)] {
        let head = Reply::new(200);
        let reply = if length {
            let head = head.with("Content-Length: 8");
            head.send("the ").pause(gate).send("page")
        } else {
            let head = head.with("Transfer-Encoding: chunked");
            let first = head.chunk("the ").pause(gate);
            first.chunk("page").send("0\r\n\r\n")
        };
        origin.on(target).reply(reply);
    }
    let url = origin.url();
    (origin, url)
}

#[test]
fn a_body_that_takes_its_time_has_a_line() {
    for (target, wanted) in [("known", "4 B of 8 B, "), ("unknown", "4 B, ")] {
        let gate = Gate::default();
        let (_origin, url) = halves(&gate);
        let place = Place::new();
        let fetch = OnTerminal::start(&place, &format!("-o file {url}/{target}"));
        fetch.shows(wanted);
        gate.open();
        let (code, shown) = fetch.end();
        assert_eq!(code, Some(0), "{shown}");
        let file = fs::read_to_string(place.path("file")).expect("it is there");
        assert_eq!(file, "the page");
        // The line is gone at the end.
        let last = shown.rsplit("\u{1b}[2K").next().unwrap_or_default();
        assert!(!last.contains(" B"), "{shown:?}");
    }
}

#[test]
fn waiting_for_a_slow_response_is_shown_and_then_cleared() {
    let gate = Gate::default();
    let origin = Origin::start();
    origin
        .on("/none")
        .reply(Reply::new(404).body("none").after(&gate));
    let place = Place::new();
    let fetch = OnTerminal::start(&place, &format!("-o file {}/none", origin.url()));
    fetch.shows("no answer yet");
    gate.open();
    let (code, shown) = fetch.end();
    assert_eq!(code, Some(4), "{shown}");
    let last = shown.rsplit("\u{1b}[2K").next().unwrap_or_default();
    assert!(last.contains("microcache fetch: "), "{shown:?}");
    assert!(!last.contains("no answer yet"), "{shown:?}");
}

#[test]
fn short_silent_or_printed_transfers_show_no_progress() {
    let gate = Gate::default();
    let (origin, url) = halves(&gate);
    let place = Place::new();
    origin.on("/page").reply(Reply::new(200).body("the page"));
    let quick = OnTerminal::start(&place, &format!("-o file {url}/page"));
    assert_eq!(quick.end(), (Some(0), String::new()));
    let silent = OnTerminal::start(&place, &format!("-s -o file {url}/known"));
    let printed = OnTerminal::start(&place, &format!("{url}/unknown"));
    printed.shows("the ");
    // By then a line would be there.
    thread::sleep(Duration::from_millis(1_500));
    gate.open();
    assert_eq!(silent.end(), (Some(0), String::new()));
    assert_eq!(printed.end(), (Some(0), "the page".to_owned()));
}
