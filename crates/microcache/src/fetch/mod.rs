//! `microcache fetch`: a url, or what a cache has of it that commands share.

mod client;
mod draft;
mod explained;
mod output;
mod signals;
mod trust;

use std::error::Error as StdError;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use http::header::{HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, RANGE};
use http::{Method, StatusCode};
use microcache_client::{CacheInfo, Error, Outcome};
use reqwest::{Response, Url};
use tokio::runtime::Builder;
use tokio::time::timeout;

use self::client::Cached;
use self::output::Output;
use crate::cli::{Fetch, Shown};
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
/// So much of an error's body is read, which is not printed, but may be stored.
const LONGEST_ERROR: u64 = 1 << 20;

/// The fields by which somebody says what he has.
const CONDITIONS: [HeaderName; 2] = [IF_MODIFIED_SINCE, IF_NONE_MATCH];

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
    let done = match timeout(left(), transfer(fetch, &cached)).await {
        Ok(done) => done,
        Err(_) => Err(Ended::NoAnswer(format!(
            "{} took longer than --timeout allows",
            told(&fetch.url)
        ))),
    };
    // What was given up is not waited for: it ends with the process, and so does its claim.
    if matches!(done, Ok(_) | Err(Ended::HttpError(_))) {
        let is_settled = settle(&cached, left().min(SETTLING)).await;
        if is_settled && fetch.explain && matches!(done, Ok(true)) {
            tell_if_dropped(&cached);
        }
    }
    done.map(drop)
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
    let was_fetched = stats.requests(Outcome::Miss) > 0;
    if was_fetched && stats.tiers.iter().all(|tier| tier.written == 0) {
        say(
            "it is not stored after all: no directory takes it, it is larger than a quarter of that (--cache-size), \
             or it came faster than it could be written",
        );
    }
}

/// Says whether it has come, and was going to be stored.
async fn transfer(fetch: &Fetch, cached: &Cached) -> Result<bool, Ended> {
    let is_head = fetch.shown == Shown::Head;
    let method = if is_head { Method::HEAD } else { Method::GET };
    let began = Instant::now();
    let answer = cached.ask(fetch, method).await;
    let mut response = answer.map_err(|error| Ended::NoAnswer(unreached(fetch, &error)))?;
    let took = began.elapsed();
    let info = response.extensions().get::<CacheInfo>().copied();
    if info.is_some_and(|info| info.outcome == Outcome::Module) {
        return Err(not_stored(fetch));
    }
    if fetch.explain {
        say(&explained::line(fetch, &response, info, took));
    }
    let status = response.status();
    if !fetch.no_fail
        && let Some(error) = error_of(&response)
    {
        drain(&mut response).await;
        return Err(Ended::HttpError(format!(
            "{error}; --no-fail prints what it says"
        )));
    }
    if let Some(what) = unasked(fetch, status) {
        let url = told(response.url());
        return Err(Ended::NoAnswer(format!("{url} answered {what}")));
    }
    // What the one who asks has is what there is. It stays where it is.
    if status == StatusCode::NOT_MODIFIED && fetch.shown == Shown::Body {
        return Ok(false);
    }
    let mut output = Output::open(fetch.output.as_deref()).await?;
    if fetch.shown != Shown::Body {
        output.write(output::head(&response)).await?;
    }
    while let Some(piece) = next(fetch, &mut response).await? {
        output.write(piece).await?;
    }
    output.finish().await?;
    Ok(info.is_some_and(|info| info.stored))
}

/// The next piece of the body.
async fn next(fetch: &Fetch, response: &mut Response) -> Result<Option<bytes::Bytes>, Ended> {
    response.chunk().await.map_err(|error| {
        let why = deepest(&error);
        let url = told(&fetch.url);
        Ended::NoAnswer(format!("the answer of {url} broke off: {why}"))
    })
}

/// Reads what is not printed, so that it can be stored.
async fn drain(response: &mut Response) {
    let mut read = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        read += piece.len() as u64;
        if read > LONGEST_ERROR {
            return;
        }
    }
}

/// What an answer says that is no good, if that is what it says.
fn error_of(response: &Response) -> Option<String> {
    let (url, status) = (told(response.url()), response.status());
    if status.as_u16() >= 400 {
        let reason = status.canonical_reason().unwrap_or("an error");
        return Some(format!("{url} answered {} {reason}", status.as_u16()));
    }
    // The others lead nowhere.
    let leads_on = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| leads_on)?;
    Some(format!(
        "{url} redirects to {location:?}, which is not followed: nothing is fetched from there, or there were twenty before it"
    ))
}

/// What nobody has asked for, if that is what is answered.
fn unasked(fetch: &Fetch, status: StatusCode) -> Option<&'static str> {
    let says = |names: &[HeaderName]| names.iter().any(|name| fetch.headers.contains_key(name));
    match status {
        StatusCode::SWITCHING_PROTOCOLS => {
            Some("101 Switching Protocols, and there is no other to speak")
        }
        StatusCode::NOT_MODIFIED if !says(&CONDITIONS) => {
            Some("304 Not Modified, and nobody asked whether it was")
        }
        StatusCode::PARTIAL_CONTENT if !says(&[RANGE]) => {
            Some("206 Partial Content, and nobody asked for a part")
        }
        _ => None,
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
    if asked.is_some_and(reqwest::Error::is_timeout) {
        return format!("no answer from {url} in time{remedy}");
    }
    format!("no answer from {url}: {why}{remedy}")
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
