//! Fetches one URL, with retries, and prints the response.

use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, RANGE};
use microcache_client::{CacheInfo, Outcome};
use reqwest::Response;
use tokio::time::sleep;

use super::client::Cached;
use super::failure::{FetchFailure, not_stored, unreached};
use super::message::{deepest, say, without_secrets};
use super::output::{self, Output};
use super::progress::Progress;
use super::retry::{Next, Retries};
use super::{explained, verbose};
use crate::cli::{Fetch, PrintedParts, Usage};
use crate::tell;

/// Bytes of an error body that are read, because it may be stored.
const LONGEST_ERROR: u64 = 1 << 20;

/// Request fields that make a request conditional.
const CONDITIONS: [HeaderName; 2] = [IF_MODIFIED_SINCE, IF_NONE_MATCH];

/// Fetches and prints. `is_stored` is set if the response was going to be stored.
pub(super) async fn transfer(
    fetch: &Fetch,
    cached: &Cached,
    is_stored: &mut bool,
) -> Result<(), FetchFailure> {
    let mut transfer = Transfer {
        fetch,
        cached,
        usage: fetch.usage,
        retries: Retries::of(fetch),
        progress: Progress::begin(fetch),
        is_stored,
    };
    loop {
        match transfer.attempt().await? {
            Attempt::Done => return Ok(()),
            Attempt::Again(pause) => sleep(pause).await,
        }
        // A stored error must not answer the retry.
        if transfer.usage == Usage::Usual {
            transfer.usage = Usage::NoCache;
        }
    }
}

struct Transfer<'a> {
    fetch: &'a Fetch,
    cached: &'a Cached,
    usage: Usage,
    retries: Retries,
    progress: Progress,
    is_stored: &'a mut bool,
}

enum Attempt {
    Done,
    /// Retry after this pause.
    Again(Duration),
}

impl Transfer<'_> {
    async fn attempt(&mut self) -> Result<Attempt, FetchFailure> {
        let fetch = self.fetch;
        let began = Instant::now();
        let mut response = match self.cached.ask(fetch, self.usage).await {
            Ok(response) => response,
            Err(error) => {
                let next = self.retries.after_error(&error);
                return self.again(&next, || unreached(fetch, &error), FetchFailure::NoAnswer);
            }
        };
        let took = began.elapsed();
        let info = response.extensions().get::<CacheInfo>().copied();
        *self.is_stored = info.is_some_and(|info| info.stored);
        if info.is_some_and(|info| info.outcome == Outcome::Module) {
            return Err(not_stored(fetch));
        }
        self.progress.aside(|| show(fetch, &response, info, took));
        let status = response.status();
        let is_new = info.is_none_or(|info| {
            let outcome = info.outcome;
            !matches!(outcome, Outcome::Hit | Outcome::Stale | Outcome::Validated)
        });
        if is_new && let Some(error) = error_of(&response) {
            match self.retries.after_answer(status, response.headers()) {
                Next::End => {}
                Next::TooLong(_) if fetch.no_fail => {}
                next => {
                    drain(&mut response).await;
                    return self.again(&next, || error, FetchFailure::HttpError);
                }
            }
        }
        if !fetch.no_fail
            && let Some(error) = error_of(&response)
        {
            drain(&mut response).await;
            let error = format!("{error}; --no-fail prints its body");
            return Err(FetchFailure::HttpError(error));
        }
        if let Some(what) = unsolicited(fetch, status) {
            let url = without_secrets(response.url());
            return Err(FetchFailure::NoAnswer(format!("{url} answered {what}")));
        }
        // The client's copy is valid, and stays.
        if status == StatusCode::NOT_MODIFIED && fetch.shown == PrintedParts::Body {
            return Ok(Attempt::Done);
        }
        self.print(response).await
    }

    async fn print(&mut self, mut response: Response) -> Result<Attempt, FetchFailure> {
        let mut output = Output::open(self.fetch.output.as_deref()).await?;
        if self.fetch.shown != PrintedParts::Body {
            output.write(output::head(&response)).await?;
        }
        self.progress.body(response.content_length());
        loop {
            match response.chunk().await {
                Ok(Some(piece)) => {
                    self.progress.add(piece.len());
                    output.write(piece).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    let next = if output.can_be_taken_back() {
                        self.retries.after_break()
                    } else {
                        Next::End
                    };
                    let url = without_secrets(&self.fetch.url);
                    let why =
                        || format!("the response of {url} was truncated: {}", deepest(&error));
                    return self.again(&next, why, FetchFailure::NoAnswer);
                }
            }
        }
        output.finish().await?;
        Ok(Attempt::Done)
    }

    /// Reports the failure and the retry, or fails.
    fn again(
        &self,
        next: &Next,
        why: impl FnOnce() -> String,
        ended: impl FnOnce(String) -> FetchFailure,
    ) -> Result<Attempt, FetchFailure> {
        let why = why();
        match *next {
            Next::Again { pause, left } => {
                if !self.fetch.silent {
                    let pause = explained::short(pause);
                    let note = format!("{why}; retrying in {pause}, {left} more after that");
                    self.progress.aside(|| say(&note));
                }
                self.progress.again();
                Ok(Attempt::Again(pause))
            }
            Next::TooLong(pause) => {
                let pause = explained::short(pause);
                let bound = "more than --timeout allows (10 minutes by default)";
                Err(ended(format!("{why}; Retry-After is {pause}, {bound}")))
            }
            Next::End => Err(ended(why)),
        }
    }
}

/// Prints the explanation, and the head of a stored response.
fn show(fetch: &Fetch, response: &Response, info: Option<CacheInfo>, took: Duration) {
    if !fetch.explain && !fetch.verbose {
        return;
    }
    let line = explained::line(fetch, response, info, took);
    if !fetch.verbose {
        say(&line);
        return;
    }
    tell(&format!("* {line}\n"));
    let is_sent_now = info.is_none_or(|info| {
        let outcome = info.outcome;
        matches!(outcome, Outcome::Miss | Outcome::Bypass | Outcome::Failure)
    });
    if !is_sent_now {
        tell(&verbose::response_lines(response));
    }
}

/// Reads an unprinted body, so that it can be stored.
async fn drain(response: &mut Response) {
    let mut read = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        read += piece.len() as u64;
        if read > LONGEST_ERROR {
            return;
        }
    }
}

/// Message for an error status, if it is one.
fn error_of(response: &Response) -> Option<String> {
    let (url, status) = (without_secrets(response.url()), response.status());
    if status.as_u16() >= 400 {
        let reason = status.canonical_reason().unwrap_or("an error");
        return Some(format!("{url} answered {} {reason}", status.as_u16()));
    }
    // Other 3xx statuses are not redirects.
    let leads_on = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| leads_on)?;
    // A password is hidden, as in the request's URL.
    let place = str::from_utf8(location.as_bytes()).ok();
    let place = place.and_then(|place| response.url().join(place).ok());
    let place = place.map_or_else(
        || format!("{location:?}"),
        |place| without_secrets(&place).to_string(),
    );
    Some(format!(
        "{url} redirects to {place}, which is not followed: nothing can be fetched from there, or more than twenty redirects"
    ))
}

/// Message for a status that the request did not ask for (101, 206, 304), if it is one.
fn unsolicited(fetch: &Fetch, status: StatusCode) -> Option<&'static str> {
    let says = |names: &[HeaderName]| names.iter().any(|name| fetch.headers.contains_key(name));
    match status {
        StatusCode::SWITCHING_PROTOCOLS => {
            Some("101 Switching Protocols without an Upgrade in the request")
        }
        StatusCode::NOT_MODIFIED if !says(&CONDITIONS) => {
            Some("304 Not Modified to an unconditional request")
        }
        StatusCode::PARTIAL_CONTENT if !says(&[RANGE]) => {
            Some("206 Partial Content to a request without Range")
        }
        _ => None,
    }
}
