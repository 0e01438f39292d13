//! `microcache warm`: starts the warming of pages in a running server, and follows it to its end.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::client::{Client, RequestError};
use super::render::{list, number};
use crate::INTERRUPTED;
use crate::cli::{Warm, WarmList};
use crate::count::count;
use crate::fetch::signals::caught;

/// The interval of questions about the progress.
const PACE: Duration = Duration::from_millis(300);
/// The state of a job that Ctrl-C has stopped.
const INTERRUPTED_STATE: &str = "interrupted";
/// The results of a URL.
const RESULTS: [&str; 4] = ["stored", "fresh", "not_stored", "failed"];

/// Warms the pages. Returns the job at its end.
pub(super) fn follow(client: &Client, warm: &Warm) -> Result<Value, RequestError> {
    let mut body = match &warm.list {
        WarmList::Sitemap(url) => json!({ "sitemap": url }),
        WarmList::File(path) => json!({ "urls": urls(path)? }),
    };
    if let Some(rate) = &warm.rate {
        body["rate"] = json!(rate);
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| RequestError::Unreached(error.to_string()))?;
    runtime.block_on(follow_job(client, client.post("/v1/warm", &body)?))
}

/// The exit status of the command.
pub(super) fn ends(job: &Value) -> ExitCode {
    match job["state"].as_str() {
        Some("done") => ExitCode::SUCCESS,
        Some(INTERRUPTED_STATE) => INTERRUPTED.into(),
        _ => ExitCode::FAILURE,
    }
}

/// The lines of a list that are neither empty nor comments.
fn urls(path: &Path) -> Result<Vec<String>, RequestError> {
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let unreadable =
        |error| RequestError::Refused(format!("cannot read {}: {error}", path.display()));
    let text = text.map_err(unreadable)?;
    let lines = text.lines().map(str::trim);
    let urls = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(urls.map(str::to_owned).collect())
}

/// Asks for the progress of a job until it ends, or until a signal stops it.
async fn follow_job(client: &Client, mut job: Value) -> Result<Value, RequestError> {
    let path = format!("/v1/warm/{}", job["id"].as_str().unwrap_or_default());
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let mut caught = pin!(caught());
    while job["state"] == "running" {
        tokio::select! {
            _ = &mut caught => {
                job = client.delete(&path)?;
                job["state"] = json!(INTERRUPTED_STATE);
            }
            () = sleep(PACE) => job = client.get(&path, &[])?,
        }
        bar.set_length(number(&job["urls"]));
        bar.set_position(RESULTS.iter().map(|name| number(&job[name])).sum());
    }
    bar.finish_and_clear();
    Ok(job)
}

/// The results, and a line for each reason.
pub(super) fn text(job: &Value) -> String {
    let [stored, fresh, not_stored, failed] = RESULTS.map(|name| number(&job[name]));
    let mut out = match (job["state"].as_str(), job["error"].as_str()) {
        (Some("done"), _) => String::new(),
        (_, why) => format!("ended early: {}\n", why.unwrap_or(INTERRUPTED_STATE)),
    };
    let _ = writeln!(
        out,
        "{} in {:.1} s: {stored} stored, {fresh} fresh already, {not_stored} not stored, {failed} failed",
        count(number(&job["urls"]), "URL"),
        job["seconds"].as_f64().unwrap_or_default()
    );
    for reason in list(&job["reasons"]) {
        let word = |name: &str| reason[name].as_str().unwrap_or_default();
        let _ = writeln!(
            out,
            "  {} {}: {}",
            reason["count"],
            word("reason"),
            word("url")
        );
    }
    out
}
