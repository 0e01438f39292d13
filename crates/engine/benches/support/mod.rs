//! Instruction counts under callgrind, which are the same on idle and busy machines.
//!
//! `cargo bench` prints a table; `cargo test --benches` runs every case once, uncounted. To see
//! where a case spends its instructions, with the path of the bench binary that cargo prints:
//! `valgrind --tool=callgrind --toggle-collect='*repeat*' BINARY --case NAME`, then
//! `callgrind_annotate` on its output.

use std::env;
use std::process::Command;

/// A case to count.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Prepares the case and returns one round of its work, which checks its own result on its
    /// first call only.
    pub(crate) prepare: fn() -> Box<dyn FnMut()>,
}

/// The fields of a current browser, besides `Host`.
pub(crate) const BROWSER_FIELDS: &str = "\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.7,de;q=0.3\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: http://www.example.com/articles/\r\n\
    DNT: 1\r\n\
    Connection: keep-alive\r\n\
    Cookie: _ga=GA1.2.1234567890.1700000000; _gid=GA1.2.987654321.1700000000\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-User: ?1\r\n\
    Priority: u=0, i\r\n";

/// Counted rounds; one-time costs are lost among them.
const ROUNDS: u32 = 1_000;

pub(crate) fn main(title: &str, cases: &[Case]) {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--case", name] => {
            let case = cases.iter().find(|case| case.name == name);
            let mut round = (case.expect("a case of that name").prepare)();
            round();
            repeat(&mut *round);
        }
        ["--bench", ..] => {
            println!("\n## {title}\n\n| case | instructions |\n|---|---:|");
            for case in cases {
                println!("| {} | {} |", case.name, count(case));
            }
        }
        _ => cases.iter().for_each(|case| (case.prepare)()()),
    }
}

/// The only function that callgrind counts.
#[inline(never)]
fn repeat(round: &mut dyn FnMut()) {
    for _ in 0..ROUNDS {
        round();
    }
}

/// Instructions per round.
fn count(case: &Case) -> u64 {
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*repeat*"])
        .arg("--callgrind-out-file=/dev/null")
        .arg(env::current_exe().expect("a binary knows its path"))
        .args(["--case", case.name])
        .output()
        .expect("valgrind is installed");
    let report = String::from_utf8_lossy(&valgrind.stderr);
    assert!(valgrind.status.success(), "{}: {report}", case.name);
    let collected = report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse::<u64>().ok())
        .expect("callgrind says how much it collected");
    assert!(collected > 0, "{}: nothing was counted", case.name);
    collected / u64::from(ROUNDS)
}
