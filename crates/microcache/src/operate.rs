//! What an operator asks of a running server: sent to its interface, and shown.

pub(crate) mod client;
mod explained;
pub(crate) mod shown;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::{Errand, Operate};
use crate::{BAD_USAGE, print, tell};
use client::{Client, Failed};

/// How long it is waited for what purges have hit. They are in force without that.
const COUNTING: Duration = Duration::from_secs(3);
/// Errors that are shown with the statistics.
const ERRORS: usize = 5;
/// How often that is asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks, and prints the answer.
pub(crate) fn run(operate: &Operate) -> ExitCode {
    let answer = Client::new(&operate.server).and_then(|client| match &operate.errand {
        Errand::Purge(body) => client.post("/v1/purges", body),
        Errand::Stats => client.get("/v1/stats", &[]),
        Errand::Entries(parameters) => client.get("/v1/entries", parameters),
        Errand::Explain(body) => client.post("/v1/explain", body),
        Errand::Drain => client.post("/v1/drain", &Value::Null),
        Errand::Reload => client.post("/v1/reload", &Value::Null),
        Errand::Upgrade => client.post("/v1/upgrade", &Value::Null),
    });
    let ends = answer
        .as_ref()
        .ok()
        .map_or(ExitCode::SUCCESS, |answer| match &operate.errand {
            Errand::Explain(_) => explained::ends(answer),
            _ => ExitCode::SUCCESS,
        });
    match answer {
        Ok(mut answer) if operate.json => {
            if let Errand::Purge(_) = operate.errand {
                let hits = hits(operate, &answer);
                note_hits(&mut answer, &hits);
            }
            print(&format!("{answer}\n"));
        }
        Ok(answer) => print(&match &operate.errand {
            Errand::Purge(_) => shown::purges(&answer, &hits(operate, &answer)),
            Errand::Stats => shown::stats(&answer) + &recent_errors(operate),
            Errand::Entries(_) => shown::entries(&answer),
            Errand::Explain(_) => explained::text(&answer),
            Errand::Drain => {
                "it is not ready any more, finishes what is under way and ends\n".to_owned()
            }
            Errand::Reload => shown::reloaded(&answer),
            Errand::Upgrade => format!("process {} serves in its place\n", answer["pid"]),
        }),
        Err(Failed::Refused(why)) => {
            tell(&format!("microcache: {why}\n"));
            return BAD_USAGE.into();
        }
        Err(Failed::Unreached(why)) => {
            tell(&format!("microcache: {why}\n"));
            return ExitCode::FAILURE;
        }
    }
    ends
}

/// What went wrong lately, as far as it is worth a line.
fn recent_errors(operate: &Operate) -> String {
    let limit = [("limit", ERRORS.to_string())];
    let asked = Client::new(&operate.server).and_then(|client| client.get("/v1/errors", &limit));
    asked.map_or_else(|_| String::new(), |told| shown::errors(&told))
}

/// How many entries in memory each of these purges has hit, as far as the server can say so soon.
fn hits(operate: &Operate, answer: &Value) -> Vec<Option<u64>> {
    let until = Instant::now() + COUNTING;
    let Ok(client) = Client::new(&operate.server) else {
        return Vec::new();
    };
    let hit = |purge: &Value| {
        let path = format!("/v1/purges/{}", purge["id"].as_str()?);
        loop {
            let progress = client.get(&path, &[]).ok()?;
            if progress["swept"] == true {
                return progress["entries"].as_u64();
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(LOOK_EVERY);
        }
    };
    let purges = answer["purges"].as_array();
    purges.into_iter().flatten().map(hit).collect()
}

/// Adds to each purge the entries in memory that it has hit, where the server has counted them.
fn note_hits(answer: &mut Value, hits: &[Option<u64>]) {
    let purges = answer["purges"].as_array_mut();
    for (purge, hits) in purges.into_iter().flatten().zip(hits) {
        purge["entries"] = (*hits).into();
    }
}
