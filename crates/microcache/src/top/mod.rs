//! `microcache top`: what a running server does, on a terminal, second by second.

mod feed;
mod figures;
mod keys;
mod lists;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cli::Operated;
use crate::operate::client::Failed;
use crate::{BAD_USAGE, INTERRUPTED, tell};
use feed::Feed;
use keys::Next;
use screen::Screen;

/// How long a key or a signal may wait for being noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shows it until the operator has seen enough.
pub(crate) fn run(server: &Operated) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        tell(
            "microcache: top draws on a terminal, and this is none; `microcache stats` prints the numbers\n",
        );
        return BAD_USAGE.into();
    }
    // What is wrong with the address or the secret is said before anything is drawn.
    let feed = match Feed::start(server) {
        Ok(feed) => feed,
        Err(why) => return failed(why),
    };
    match show(&server.admin, &feed) {
        Ok(Ended::Left) => ExitCode::SUCCESS,
        Ok(Ended::Interrupted) => INTERRUPTED.into(),
        Err(error) => {
            tell(&format!("microcache: cannot use the terminal: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn failed(why: Failed) -> ExitCode {
    match why {
        Failed::Refused(why) => {
            tell(&format!("microcache: {why}\n"));
            BAD_USAGE.into()
        }
        Failed::Unreached(why) => {
            tell(&format!("microcache: {why}\n"));
            ExitCode::FAILURE
        }
    }
}

enum Ended {
    Left,
    Interrupted,
}

/// Draws, with the terminal given back however it ends; for a panic, `try_init` sees to that.
fn show(admin: &str, feed: &Feed) -> io::Result<Ended> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // At SIGHUP the terminal is gone, and there is nothing to give back.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut terminal = ratatui::try_init()?;
    let ended = look(&mut terminal, admin, feed, &interrupted);
    ratatui::try_restore()?;
    ended
}

#[derive(PartialEq, Eq)]
enum Keys {
    /// Some were pressed, or it is time to draw anew.
    Perhaps,
    /// There is no terminal any more, and nobody to press any. Whoever reads from it finds its end at
    /// once, again and again.
    HungUp,
}

fn wait_for_keys() -> io::Result<Keys> {
    let stdin = io::stdin();
    let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).map_err(io::Error::other)?;
    match poll(&mut waited, Some(&patience)) {
        // A signal, such as the one that says that the terminal has another size.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let is_gone = waited[0].revents().intersects(gone);
    Ok(if is_gone { Keys::HungUp } else { Keys::Perhaps })
}

fn look(
    terminal: &mut DefaultTerminal,
    admin: &str,
    feed: &Feed,
    interrupted: &AtomicBool,
) -> io::Result<Ended> {
    let mut screen = Screen::new(admin);
    loop {
        while let Some(news) = feed.news() {
            screen.hear(news, Instant::now());
        }
        terminal.draw(|frame| view::draw(frame, &screen, Instant::now()))?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        if wait_for_keys()? == Keys::HungUp {
            return Ok(Ended::Interrupted);
        }
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match keys::press(&mut screen, key) {
            Next::Nothing => {}
            Next::Ask(wish) => feed.ask(wish),
            Next::Leave => return Ok(Ended::Left),
            Next::Interrupt => return Ok(Ended::Interrupted),
        }
    }
}
