//! `microcache demo`, from beginning to end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};

use microcache_testkit::{Process, Signal};

/// Long enough for a refresh.
const PHASE: f64 = 3.0;

fn demo(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_microcache"));
    command.arg("demo").args(flags);
    command
}

/// The figures of the row that begins so, without units.
fn row(table: &str, name: &str) -> Vec<f64> {
    let row = table
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_else(|| panic!("no row `{name}` in:\n{table}"));
    row.split_whitespace()
        .filter_map(|word| word.replace(',', "").parse().ok())
        .collect()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints text");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_table_has_figures_that_fit() {
    let output = demo(&["--phase", "3s", "--work", "5ms"])
        .output()
        .expect("the binary runs");
    let (table, progress) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{progress}");
    assert!(!progress.contains('\x1b'), "{progress}");
    assert_eq!(progress.matches("requests to the origin").count(), 3);
    // req/s, mean, stdev, max, responses, to origin, in 30 s
    let [alone, plain, default] =
        ["no cache", "plain 1 s cache", "Microcache "].map(|name| row(&table, name));
    for figures in [&alone, &plain, &default] {
        assert_eq!(figures.len(), 7, "{table}");
    }
    // Every request of a client is one to the application; some may still be under way at the end.
    assert!(
        alone[5] >= alone[4] && alone[5] <= alone[4] + 10.0,
        "{table}"
    );
    // All of them at the beginning at least.
    assert!(plain[5] >= 10.0 && plain[4] > plain[5], "{table}");
    // One at a time: a second of freshness and a render between two of them.
    let at_most = PHASE / (1.0 + 0.005) + 1.0;
    assert!(default[5] >= 1.0 && default[5] <= at_most + 1.0, "{table}");
    assert!(default[4] > default[5], "{table}");
    assert!(
        table.contains("2,185") && table.contains("661 ms"),
        "{table}"
    );
    assert!(
        table.contains("The Benefits of Microcaching with NGINX"),
        "{table}"
    );
    assert!(!table.contains("Failed requests"), "{table}");
}

fn start(command: &mut Command) -> Process {
    Process::start(command).expect("the binary runs")
}

fn address_after<'a>(reported: &'a str, what: &str) -> &'a str {
    let (_, rest) = reported.rsplit_once(what).expect("it says where");
    let (_, rest) = rest.split_once("http://").expect("it says where");
    rest.split('/').next().expect("an address")
}

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn with_keep_the_servers_run_until_the_end_of_the_demonstration() {
    let mut demo = start(demo(&["--phase", "200ms"]).arg("--keep"));
    let reported = demo.output_with("the counters");
    let application = address_after(&reported, "the application  ");
    let cache = address_after(&reported, "the cache  ");
    let direct = get(application);
    assert!(
        direct.contains("200 OK") && !direct.contains("Cache-Status"),
        "{direct}"
    );
    assert!(get(cache).contains("Cache-Status: "));
    demo.signal(Signal::INT);
    assert_eq!(demo.wait().code(), Some(0));
    assert!(TcpStream::connect(application).is_err());
    assert!(TcpStream::connect(cache).is_err());
}

#[test]
fn an_interrupt_in_the_middle_ends_everything() {
    let mut demo = start(&mut demo(&["--phase", "60s"]));
    demo.output_with("\n");
    demo.signal(Signal::INT);
    assert_eq!(demo.wait().code(), Some(130));
    demo.output_with("Interrupted");
}

#[test]
fn bad_input_gets_one_line_and_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    for (flags, says) in [
        (&["--connections", "0"][..], "--connections"),
        (&["--listen", "8080"], "such as 127.0.0.1:8080"),
        (&["--colour"], "`microcache demo --help`"),
        (&["--origin-listen", &taken], "--origin-listen"),
        (&["--listen", &taken], "--listen"),
    ] {
        let output = demo(flags)
            .args(["--phase", "200ms"])
            .output()
            .expect("the binary runs");
        let (_, reported) = text(&output);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {reported}");
        let last = reported.lines().last().expect("it says something");
        assert!(last.contains(says), "{reported}");
    }
}
