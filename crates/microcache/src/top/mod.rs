//! `microcache top`: what a running server does, on a terminal, second by second.

mod feed;
mod figures;
mod keys;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

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
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let mut terminal = ratatui::try_init()?;
    let ended = look(&mut terminal, admin, feed, &interrupted);
    ratatui::try_restore()?;
    ended
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
        terminal.draw(|frame| view::draw(frame, &mut screen, Instant::now()))?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        if !event::poll(PATIENCE)? {
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
