//! `microcache fetch`: fetches a URL through a cache that commands share.

mod client;
mod draft;
mod explained;
mod failure;
mod message;
mod output;
mod progress;
mod retry;
pub(crate) mod signals;
mod transfer;
mod trust;
mod verbose;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use microcache_client::Outcome;
use tokio::runtime::Builder;
use tokio::time::timeout;

use self::client::Cached;
use self::failure::{FetchFailure, NO_ANSWER};
use self::message::{say, without_secrets};
use self::transfer::transfer;
use crate::cli::Fetch;

/// Time limit for writes to the cache after all output has been printed.
const SETTLING: Duration = Duration::from_secs(10);
/// Time limit for an output file being opened when the command ends early.
const OPENING: Duration = Duration::from_millis(200);

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
            signal = signals::caught() => Err(FetchFailure::Interrupted(signal)),
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

async fn work(fetch: &Fetch) -> Result<(), FetchFailure> {
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
        Err(FetchFailure::NoAnswer(format!(
            "{} exceeded --timeout",
            without_secrets(&fetch.url)
        )))
    });
    // An abandoned fetch is not waited for: it ends with the process, and so does its claim.
    if matches!(done, Ok(()) | Err(FetchFailure::HttpError(_))) {
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
