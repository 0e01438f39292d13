//! Signals that end the command.

use std::fs;
use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGHUP, SIGINT or SIGTERM, and returns the signal's number. Signals that are ignored at the
/// start, as with `nohup`, stay ignored.
pub(crate) async fn caught() -> u8 {
    let kinds = [
        (1, SignalKind::hangup()),
        (2, SignalKind::interrupt()),
        (15, SignalKind::terminate()),
    ];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    let caught = kinds
        .into_iter()
        .filter(|(number, _)| ignored >> (number - 1) & 1 == 0);
    // A signal without a handler ends the process by default.
    let mut caught: Vec<(u8, Signal)> = caught
        .filter_map(|(number, kind)| Some((number, signal(kind).ok()?)))
        .collect();
    poll_fn(|cx| {
        let mut come = caught.iter_mut();
        let come =
            come.find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number));
        come.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Bit mask of ignored signals, from `/proc`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_detected() {
        assert_eq!(
            ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"),
            0x1001
        );
        assert_eq!(ignored(""), 0);
    }
}
