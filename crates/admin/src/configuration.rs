//! Configuration in force, reload and upgrade.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use microcache_proxy::config::{MistakeView, OptionSource, Plain, Report, Setting, Settings};
use microcache_proxy::{ReloadError, UpgradeError};
use serde_json::{Map, Value, json};

use crate::interface::Interface;
use crate::problem::Problem;

/// Lists every option with its value and source.
pub(crate) async fn in_force(State(interface): State<Arc<Interface>>) -> Json<Value> {
    let config = interface.handle.config();
    let Settings {
        file,
        options,
        upstreams,
        routes,
    } = &config.settings;
    let named = |of: &[(String, Vec<Setting>)]| {
        let all = of.iter();
        all.map(|(name, options)| json!({"name": name, "options": all_of(options)}))
            .collect::<Vec<_>>()
    };
    Json(json!({
        "file": file,
        "generation": interface.handle.generation(),
        "options": all_of(options),
        "upstreams": named(upstreams),
        "routes": named(routes),
    }))
}

fn all_of(settings: &[Setting]) -> Vec<Value> {
    settings.iter().map(shown).collect()
}

fn shown(setting: &Setting) -> Value {
    let (source, file, line) = match &setting.source {
        OptionSource::Default => ("default", None, None),
        OptionSource::File { name, line } => ("file", Some(name), Some(line)),
        OptionSource::CommandLine => ("command-line", None, None),
    };
    json!({
        "name": setting.name,
        "value": setting.value.as_ref().map(value_of),
        "source": source,
        "file": file,
        "line": line,
        "default": setting.default,
    })
}

fn value_of(plain: &Plain) -> Value {
    match plain {
        Plain::Text(text) => json!(text),
        // Digits are kept as written; a number that JSON cannot represent stays text.
        Plain::Number(digits) => serde_json::from_str(digits).unwrap_or_else(|_| json!(digits)),
        Plain::Switch(on) => json!(on),
        Plain::List(items) => items.iter().map(value_of).collect(),
        Plain::Table(entries) => {
            let entries = entries.iter();
            let entries: Map<_, _> = entries
                .map(|(name, value)| (name.clone(), value_of(value)))
                .collect();
            entries.into()
        }
    }
}

/// Reloads the file. When the response arrives, all of it is in force, or nothing.
pub(crate) async fn reload(
    State(interface): State<Arc<Interface>>,
) -> Result<Json<Value>, Problem> {
    let reloaded = interface
        .handle
        .reload()
        .await
        .map_err(|why| refused(&why))?;
    Ok(Json(json!({
        "generation": reloaded.generation,
        "changed": reloaded.changed,
        "warnings": mistake_views(&reloaded.warnings),
    })))
}

fn refused(why: &ReloadError) -> Problem {
    let (status, remedy) = match why {
        ReloadError::NoFile => (
            StatusCode::CONFLICT,
            "start it with --config FILE; options on the command line cannot be reloaded",
        ),
        ReloadError::Draining => (StatusCode::CONFLICT, "send the request to the new process"),
        ReloadError::Busy => (StatusCode::TOO_MANY_REQUESTS, "retry in a second"),
        ReloadError::Source(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "correct the file; `microcache check FILE` reports its mistakes",
        ),
        ReloadError::TierLogin(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "add the new password at the server first, then reload, then remove the old one",
        ),
        ReloadError::NeedsRestart(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "run `microcache upgrade`, which applies it without losing a request, or undo the change",
        ),
    };
    let problem = Problem::new(status, why.to_string(), remedy);
    match why.report() {
        Some(report) => problem.with_mistakes(mistake_views(report)),
        None => problem,
    }
}

/// Upgrades to a new process. When the response arrives, either the new process serves, or this one
/// continues.
pub(crate) async fn upgrade(
    State(interface): State<Arc<Interface>>,
) -> Result<Json<Value>, Problem> {
    match interface.handle.upgrade().await {
        Ok(process) => Ok(Json(json!({"pid": process}))),
        Err(why) => Err(not_upgraded(&why)),
    }
}

fn not_upgraded(why: &UpgradeError) -> Problem {
    let (status, remedy) = match why {
        UpgradeError::Draining => (StatusCode::CONFLICT, "send the request to the new process"),
        UpgradeError::First => (
            StatusCode::CONFLICT,
            "start another container, and stop this one when the new one is ready",
        ),
        UpgradeError::Busy => (StatusCode::TOO_MANY_REQUESTS, "retry in a second"),
        UpgradeError::NotStarted(_) | UpgradeError::Failed(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "correct the cause and retry; this process continues",
        ),
    };
    Problem::new(status, why.to_string(), remedy)
}

fn mistake_views(report: &Report) -> Vec<Value> {
    let one = |mistake: MistakeView| {
        json!({
            "location": mistake.place,
            "line": mistake.line,
            "message": mistake.what,
            "hint": mistake.remedy,
        })
    };
    report.mistakes().map(one).collect()
}
