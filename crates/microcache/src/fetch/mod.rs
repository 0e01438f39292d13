//! `microcache fetch`: fetches a URL through a cache that commands share.

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

/// Exit code: no response, or an incomplete one.
const NO_ANSWER: u8 = 1;
/// Exit code: nothing is stored, and `--offline` forbids requests.
const NOT_STORED: u8 = 3;
/// Exit code: the server's response is an error.
const HTTP_ERROR: u8 = 4;
/// Exit code: the output cannot be written.
const NO_OUTPUT: u8 = 5;

/// Time limit for writes to the cache after all output has been printed.
const SETTLING: Duration = Duration::from_secs(10);
/// Time limit for an output file being opened when the command ends early.
const OPENING: Duration = Duration::from_millis(200);
/// Reason for which the command failed.
enum Ended {
    /// An argument cannot be used.
    Unusable(String),
    NoAnswer(String),
    NotStored(String),
    HttpError(String),
    NoOutput(String),
    /// The reader of standard output has closed it.
    NobodyReads,
    /// Interrupted by this signal.
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
            // Exit code of shells.
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

/// Fetches, prints and stores the response.
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
    // Blocked writes end with the process; but a file that is being opened is removed first.
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
    let done = timeout(left(), transfer(fetch, &cached, &mut is_stored)).await;
    let done = done.unwrap_or_else(|_elapsed| {
        Err(Ended::NoAnswer(format!(
            "{} exceeded --timeout",
            told(&fetch.url)
        )))
    });
    // An abandoned fetch is not waited for: it ends with the process, and so does its claim.
    if matches!(done, Ok(()) | Err(Ended::HttpError(_))) {
        let is_settled = settle(&cached, left().min(SETTLING)).await;
        if is_settled && is_stored && (fetch.explain || fetch.verbose) {
            tell_if_dropped(&cached);
        }
    }
    done
}

/// Waits until the response is stored, and a background refresh complete. Returns true if they are.
async fn settle(cached: &Cached, most: Duration) -> bool {
    let settled = timeout(most, cached.cache.settled()).await;
    for trouble in cached.cache.troubles() {
        say(&format!("the cache: {trouble}"));
    }
    // A stale response that may be served needs no refresh.
    let was_fetched = cached.cache.stats().requests(Outcome::Stale) == 0;
    if settled.is_err() && was_fetched {
        say("not stored: the cache took too long to store the response");
    }
    settled.is_ok()
}

/// Warns if the response was not stored, for instance because its body was too long.
fn tell_if_dropped(cached: &Cached) {
    let stats = cached.cache.stats();
    // A stored redirect counts as well.
    if stats.tiers.iter().all(|tier| tier.written < stats.stored) {
        say(
            "not stored after all: no directory is available, the response exceeds a quarter of --cache-size, or \
             it arrived faster than it could be written",
        );
    }
}

fn not_stored(fetch: &Fetch) -> Ended {
    Ended::NotStored(format!(
        "no usable response is stored for {}; omit --offline to fetch it",
        told(&fetch.url)
    ))
}

/// Explains a failed request, with a remedy.
fn unreached(fetch: &Fetch, error: &Error) -> String {
    let asked = error.inner::<reqwest::Error>();
    let url = asked.and_then(reqwest::Error::url);
    let url = told(url.unwrap_or(&fetch.url));
    let why = deepest(error);
    let remedy = if why.contains("certificate") {
        "; set its CA with --cacert FILE"
    } else {
        "; --offline prints a stored response, if there is one"
    };
    let way = match &fetch.proxy {
        Some(Proxy::At(proxy)) => format!(" through the proxy {}", told(proxy)),
        _ => String::new(),
    };
    if asked.is_some_and(reqwest::Error::is_timeout) {
        return format!("no answer from {url}{way} in time{remedy}");
    }
    format!("no answer from {url}{way}: {why}{remedy}")
}

/// Message of the innermost error.
fn deepest(error: &dyn StdError) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// URL for messages: without user, password and fragment.
fn told(url: &Url) -> Url {
    let mut url = url.clone();
    // Fails for URLs that cannot have them.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_fragment(None);
    url
}

fn say(what: &str) {
    tell(&format!("microcache fetch: {what}\n"));
}
