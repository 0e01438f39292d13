//! Child processes.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::eventually;

/// Time for the last lines of a process that has ended.
const LAST_LINES: Duration = Duration::from_millis(300);

/// Child process with all that it prints, killed on drop.
pub struct Process {
    child: Child,
    output: Arc<Mutex<String>>,
}

impl Process {
    /// Starts a command; `None` if its program is not installed.
    pub fn start(command: &mut Command) -> Option<Self> {
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{command:?}: {error}"),
        };
        let output = Arc::default();
        collect(child.stdout.take().expect("it is piped"), &output);
        collect(child.stderr.take().expect("it is piped"), &output);
        Some(Self { child, output })
    }

    /// Waits until `sign` returns a value for the output so far; fails the test if the process ends before.
    #[track_caller]
    pub fn ready<T>(&mut self, what: &str, mut sign: impl FnMut(&str) -> Option<T>) -> T {
        eventually(what, || {
            let ended = self.child.try_wait().expect("a child");
            let value = sign(&self.output());
            assert!(
                value.is_some() || ended.is_none(),
                "{what}: it ended with {ended:?}:\n{}",
                self.output()
            );
            value
        })
    }

    /// Waits until it accepts connections at a port of loopback; fails the test if it ends before.
    #[track_caller]
    pub fn listens(&mut self, port: u16) {
        let address = (Ipv4Addr::LOCALHOST, port);
        self.ready("connections", |_| TcpStream::connect(address).ok());
    }

    /// Number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has printed so far.
    pub fn output(&self) -> String {
        self.output.lock().expect("no thread has panicked").clone()
    }

    /// Waits until the output contains `text`, and returns it.
    #[track_caller]
    pub fn output_with(&self, text: &str) -> String {
        eventually(text, || {
            let output = self.output();
            output.contains(text).then_some(output)
        })
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Stops it, until it is thawed; the kernel still accepts connections for it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        // The signal takes effect later; this waits until every thread has stopped.
        let stopped = waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        stopped.expect("it stops");
    }

    /// Resumes a suspended process.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Returns false once it has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let status = eventually("a process to end", || {
            self.child.try_wait().expect("a child")
        });
        // Its last lines may still be read; a child of its own may hold the pipe for longer.
        let until = Instant::now() + LAST_LINES;
        while Arc::strong_count(&self.output) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!(
                "--- output of process {} ---\n{}",
                self.pid(),
                self.output()
            );
        }
    }
}

/// Sends a signal to a process that need not be a child, and may have ended.
pub fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).expect("a process"), signal);
}

/// Reads on a thread, such that the process never waits for a reader.
fn collect(from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) {
    let (mut from, into) = (BufReader::new(from), Arc::clone(into));
    thread::spawn(move || {
        let mut line = Vec::new();
        while from
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let mut output = into.lock().expect("no thread has panicked");
            output.push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let process = Process::start(Command::new("sh").args(["-c", script]));
        process.expect("every machine has a shell")
    }

    #[test]
    fn what_is_not_installed_is_not_started() {
        assert!(Process::start(&mut Command::new("microcache-no-such-program")).is_none());
    }

    #[test]
    fn both_outputs_are_collected() {
        let mut process = shell("echo one; echo two >&2; exec sleep 60");
        process.ready("its words", |output| output.contains("one\n").then_some(()));
        process.output_with("two\n");
        assert!(process.is_running());
        process.kill();
        assert!(!process.is_running());
    }

    #[test]
    fn a_frozen_process_goes_on_once_it_is_thawed() {
        let mut process = shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done");
        process.output_with("ready");
        process.freeze();
        process.signal(Signal::TERM);
        assert!(process.is_running());
        process.thaw();
        assert_eq!(process.wait().code(), Some(3));
    }

    #[test]
    #[should_panic(expected = "it ended with")]
    fn one_that_ends_before_it_is_ready_fails_the_test() {
        shell("exit 1").ready("nothing", |_| None::<()>);
    }
}
