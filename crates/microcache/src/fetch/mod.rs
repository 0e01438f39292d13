//! `microcache fetch`: a url, or what a cache has of it that commands share.

mod client;
mod draft;
mod explained;
mod output;
mod progress;
mod retry;
mod signals;
mod transfer;
mod trust;
mod verbose;

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use microcache_client::{Error, Outcome};
use reqwest::Url;
use tokio::runtime::Builder;
use tokio::time::timeout;

use self::client::Cached;
use self::transfer::transfer;
use crate::cli::{Fetch, Proxy};
use crate::{BAD_USAGE, tell};

/// There is no answer, or not all of it.
const NO_ANSWER: u8 = 1;
/// Nothing is stored, and nobody was to be asked.
const NOT_STORED: u8 = 3;
/// The server's answer is an error.
const HTTP_ERROR: u8 = 4;
/// Where the answer was to go, it cannot.
const NO_OUTPUT: u8 = 5;

/// How long a command waits, once it has printed everything, until all of it is stored too.
const SETTLING: Duration = Duration::from_secs(10);
/// How long a command that ends early waits for a file that is just being opened.
const OPENING: Duration = Duration::from_millis(200);
/// Why it is not done.
enum Ended {
    /// The command line names something that cannot be used.
    Unusable(String),
    NoAnswer(String),
    NotStored(String),
    HttpError(String),
    NoOutput(String),
    /// Whoever reads has had enough.
    NobodyReads,
    /// By this signal.
    Interrupted(u8),
}

impl Ended {
    const fn code(&self) -> u8 {
        match self {
            Self::Unusable(_) => BAD_USAGE,
            Self::NoAnswer(_) => NO_ANSWER,
            Self::NotStored(_) => NOT_STORED,
            Self::HttpError(_) => HTTP_ERROR,
            Self::NoOutput(_) | Self::NobodyReads => NO_OUTPUT,
            // As shells say it.
            Self::Interrupted(signal) => 128 + *signal,
        }
    }

    const fn what(&self) -> Option<&String> {
        match self {
            Self::Unusable(what)
            | Self::NoAnswer(what)
            | Self::NotStored(what)
            | Self::HttpError(what)
            | Self::NoOutput(what) => Some(what),
            Self::NobodyReads | Self::Interrupted(_) => None,
        }
    }
}

/// Fetches it, prints it, and stores it.
pub(crate) fn run(fetch: &Fetch) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("cannot begin: {error}"));
            return NO_ANSWER.into();
        }
    };
    let ended = runtime.block_on(async {
        tokio::select! {
            done = work(fetch) => done,
            signal = signals::caught() => Err(Ended::Interrupted(signal)),
        }
    });
    // What a disk or a reader still holds up ends with the process; but a file that is being opened is removed first.
    runtime.shutdown_timeout(if ended.is_ok() {
        Duration::ZERO
    } else {
        OPENING
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => {
            if let Some(what) = ended.what() {
                say(what);
            }
            ended.code().into()
        }
    }
}

async fn work(fetch: &Fetch) -> Result<(), Ended> {
    let began = Instant::now();
    let left = || {
        fetch
            .timeout
            .unwrap_or(Duration::MAX)
            .saturating_sub(began.elapsed())
    };
    let cached = Cached::new(fetch).await?;
    let mut is_stored = false;
    let done = match timeout(left(), transfer(fetch, &cached, &mut is_stored)).await {
        Ok(done) => done,
        Err(_) => Err(Ended::NoAnswer(format!(
            "{} took longer than --timeout allows",
            told(&fetch.url)
        ))),
    };
    // What was given up is not waited for: it ends with the process, and so does its claim.
    if matches!(done, Ok(_) | Err(Ended::HttpError(_))) {
        let is_settled = settle(&cached, left().min(SETTLING)).await;
        if is_settled && is_stored && (fetch.explain || fetch.verbose) {
            tell_if_dropped(&cached);
        }
    }
    done
}

/// Waits until what came is stored, and what was stale is renewed. Says whether it is.
async fn settle(cached: &Cached, most: Duration) -> bool {
    let settled = timeout(most, cached.cache.settled()).await;
    for trouble in cached.cache.troubles() {
        say(&format!("the cache: {trouble}"));
    }
    // What is stale and may be used is good without that.
    let was_fetched = cached.cache.stats().requests(Outcome::Stale) == 0;
    if settled.is_err() && was_fetched {
        say("the cache takes too long to store what came; it is not stored");
    }
    settled.is_ok()
}

/// Says so if what was going to be stored is not: how long a body is may be known at its end only.
fn tell_if_dropped(cached: &Cached) {
    let stats = cached.cache.stats();
    // A redirection that was written is one of them.
    if stats.tiers.iter().all(|tier| tier.written < stats.stored) {
        say(
            "it is not stored after all: no directory takes it, it is larger than a quarter of that (--cache-size), \
             or it came faster than it could be written",
        );
    }
}

fn not_stored(fetch: &Fetch) -> Ended {
    Ended::NotStored(format!(
        "nothing that may be used is stored of {}; leave --offline out to fetch it",
        told(&fetch.url)
    ))
}

/// Why there is no answer, and what to do.
fn unreached(fetch: &Fetch, error: &Error) -> String {
    let asked = error.inner::<reqwest::Error>();
    let url = asked.and_then(reqwest::Error::url);
    let url = told(url.unwrap_or(&fetch.url));
    let why = deepest(error);
    let remedy = if why.contains("certificate") {
        "; name its authority with --cacert FILE"
    } else {
        "; --offline gives what is stored of it, if there is something"
    };
    let way = match &fetch.proxy {
        Some(Proxy::At(proxy)) => format!(" by the proxy {}", told(proxy)),
        _ => String::new(),
    };
    if asked.is_some_and(reqwest::Error::is_timeout) {
        return format!("no answer from {url}{way} in time{remedy}");
    }
    format!("no answer from {url}{way}: {why}{remedy}")
}

/// What the last of those says who were asked why.
fn deepest(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// A url as it is told: without a password, and without what servers do not see.
fn told(url: &Url) -> Url {
    let mut url = url.clone();
    // They fail where there can be none.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_fragment(None);
    url
}

fn say(what: &str) {
    tell(&format!("microcache fetch: {what}\n"));
}
