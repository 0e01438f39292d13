//! Requests of an operator to a running server: sent to its admin interface, and printed.

pub(crate) mod client;
mod explained;
pub(crate) mod render;
mod warm;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::{Errand, MaintenanceErrand, Operate};
use crate::{BAD_USAGE, print, tell};
use client::{Client, RequestError};

/// The wait for the number of entries that a purge matched. The purge is in force before.
const COUNTING: Duration = Duration::from_secs(3);
/// The resource of maintenance mode.
const MAINTENANCE: &str = "/v1/maintenance";
/// Errors shown with the statistics.
const ERRORS: usize = 5;
/// The interval at which that number is requested.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends the request, and prints the answer.
pub(crate) fn run(operate: &Operate) -> ExitCode {
    let answer = Client::new(&operate.server).and_then(|client| match &operate.errand {
        Errand::Purge(body) => client.post("/v1/purges", body),
        Errand::Warm(pages) => warm::follow(&client, pages),
        Errand::Stats => client.get("/v1/stats", &[]),
        Errand::Entries(parameters) => client.get("/v1/entries", parameters),
        Errand::Explain(body) => client.post("/v1/explain", body),
        Errand::Drain => client.post("/v1/drain", &Value::Null),
        Errand::Reload => client.post("/v1/reload", &Value::Null),
        Errand::Upgrade => client.post("/v1/upgrade", &Value::Null),
        Errand::Maintenance(errand) => match errand {
            MaintenanceErrand::On(body) => client.post(MAINTENANCE, body),
            MaintenanceErrand::Off => client.delete(MAINTENANCE),
            MaintenanceErrand::Status => client.get(MAINTENANCE, &[]),
        },
    });
    let ends = answer
        .as_ref()
        .ok()
        .map_or(ExitCode::SUCCESS, |answer| match &operate.errand {
            Errand::Explain(_) => explained::ends(answer),
            Errand::Warm(_) => warm::ends(answer),
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
            Errand::Purge(_) => render::purges(&answer, &hits(operate, &answer)),
            Errand::Warm(_) => warm::text(&answer),
            Errand::Stats => render::stats(&answer) + &recent_errors(operate),
            Errand::Entries(_) => render::entries(&answer),
            Errand::Explain(_) => explained::text(&answer),
            Errand::Drain => {
                "draining: the server finishes its requests in progress, and exits\n".to_owned()
            }
            Errand::Reload => render::reloaded(&answer),
            Errand::Maintenance(_) => render::maintenance(&answer),
            Errand::Upgrade => format!("upgraded: process {} has taken over\n", answer["pid"]),
        }),
        Err(RequestError::Refused(why)) => {
            tell(&format!("microcache: {why}\n"));
            return BAD_USAGE.into();
        }
        Err(RequestError::Unreached(why)) => {
            tell(&format!("microcache: {why}\n"));
            return ExitCode::FAILURE;
        }
    }
    ends
}

/// The recent errors.
fn recent_errors(operate: &Operate) -> String {
    let limit = [("limit", ERRORS.to_string())];
    let answer = Client::new(&operate.server).and_then(|client| client.get("/v1/errors", &limit));
    answer.map_or_else(|_| String::new(), |errors| render::errors(&errors))
}

/// The number of entries in memory that each purge matched, as far as the server has counted them.
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

/// Adds to each purge the number of entries in memory that it matched, where it is known.
fn note_hits(answer: &mut Value, hits: &[Option<u64>]) {
    let purges = answer["purges"].as_array_mut();
    for (purge, hits) in purges.into_iter().flatten().zip(hits) {
        purge["entries"] = (*hits).into();
    }
}
