//! `microcache top`: a running server on the terminal, second by second.

mod feed;
mod figures;
mod keys;
mod lists;
mod screen;
mod styles;
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

use crate::cli::AdminAddress;
use crate::operate::client::RequestError;
use crate::{BAD_USAGE, INTERRUPTED, tell};
use feed::Feed;
use keys::Action;
use screen::Screen;

/// The interval at which keys and signals are checked.
const TIME_LIMIT: Duration = Duration::from_millis(100);

/// Shows the server until the operator quits.
pub(crate) fn run(server: &AdminAddress) -> ExitCode {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        tell("microcache: top needs a terminal; `microcache stats` prints the figures\n");
        return BAD_USAGE.into();
    }
    // Errors in the address or the token are reported before anything is drawn.
    let feed = match Feed::start(server) {
        Ok(feed) => feed,
        Err(why) => return failed(why),
    };
    match show(&server.admin, &feed) {
        Ok(Ending::Quit) => ExitCode::SUCCESS,
        Ok(Ending::Interrupted) => INTERRUPTED.into(),
        Err(error) => {
            tell(&format!("microcache: cannot use the terminal: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn failed(why: RequestError) -> ExitCode {
    match why {
        RequestError::Refused(why) => {
            tell(&format!("microcache: {why}\n"));
            BAD_USAGE.into()
        }
        RequestError::Unreached(why) => {
            tell(&format!("microcache: {why}\n"));
            ExitCode::FAILURE
        }
    }
}

enum Ending {
    Quit,
    Interrupted,
}

/// Draws, and restores the terminal in every case; on a panic, `try_init` does.
fn show(admin: &str, feed: &Feed) -> io::Result<Ending> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // At SIGHUP the terminal is gone, and there is nothing to restore.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut terminal = ratatui::try_init()?;
    let ended = look(&mut terminal, admin, feed, &interrupted);
    ratatui::try_restore()?;
    ended
}

#[derive(PartialEq, Eq)]
enum TerminalState {
    /// Keys may be waiting.
    Open,
    /// The terminal is gone: reading from it returns its end at once, again and again.
    HungUp,
}

fn wait_for_keys() -> io::Result<TerminalState> {
    let stdin = io::stdin();
    let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
    let time_limit = Timespec::try_from(TIME_LIMIT).map_err(io::Error::other)?;
    match poll(&mut waited, Some(&time_limit)) {
        // A signal, such as SIGWINCH after the terminal was resized.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let is_gone = waited[0].revents().intersects(gone);
    Ok(if is_gone {
        TerminalState::HungUp
    } else {
        TerminalState::Open
    })
}

fn look(
    terminal: &mut DefaultTerminal,
    admin: &str,
    feed: &Feed,
    interrupted: &AtomicBool,
) -> io::Result<Ending> {
    let mut screen = Screen::new(admin);
    loop {
        while let Some(news) = feed.news() {
            screen.hear(news, Instant::now());
        }
        terminal.draw(|frame| view::draw(frame, &screen, Instant::now()))?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Ending::Interrupted);
        }
        if wait_for_keys()? == TerminalState::HungUp {
            return Ok(Ending::Interrupted);
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
            Action::Nothing => {}
            Action::Send(request) => feed.send(request),
            Action::Quit => return Ok(Ending::Quit),
            Action::Interrupt => return Ok(Ending::Interrupted),
        }
    }
}
