//! Lists stored entries.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use microcache_engine::cache::Scope;
use microcache_engine::cache::entries::{EntryFilter, EntryInfo, ListingOrder, MAX_PAGE};
use microcache_policy::vary::{self, VaryNames};
use microcache_policy::{Scheme, key};
use microcache_store::EntryId;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::interface::Interface;
use crate::problem::Problem;
use crate::scopes;

/// Default number of entries per page.
const PAGE: usize = 100;

/// Filter of `GET /v1/entries`. At most one name; without one, all entries.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EntriesQuery {
    url: Option<String>,
    prefix: Option<String>,
    glob: Option<String>,
    host: Option<String>,
    tag: Option<String>,
    /// Minimum size in bytes.
    min_size: u64,
    /// Minimum age in seconds.
    min_age: u64,
    min_hits: u32,
    order: EntryOrder,
    tier: ListedTier,
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum EntryOrder {
    #[default]
    Key,
    Size,
    Age,
    Hits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListedTier {
    #[default]
    Memory,
    Disk,
}

/// Handles `GET /v1/entries`: one page of entries.
pub(crate) async fn entries(
    State(interface): State<Arc<Interface>>,
    query: Result<Query<EntriesQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(query) = query?;
    let engine = interface.handle.engine();
    let scopes_of_url =
        |scheme, host: &[u8], target: &[u8]| engine.scopes_of_url(scheme, host, target);
    let wanted = EntryFilter {
        scopes: query.scopes(scopes_of_url)?,
        size: query.min_size,
        age: query.min_age.saturating_mul(1000),
        uses: query.min_hits,
    };
    let limit = query.limit()?;
    let (entries, next) = match query.tier {
        ListedTier::Memory => {
            let after = query.after.as_deref().map(|after| {
                hex::decode(after)
                    .ok()
                    .and_then(|bytes| {
                        microcache_engine::cache::entries::ListingCursor::decode(&bytes)
                    })
                    .ok_or_else(bad_cursor)
            });
            let after = after.transpose()?;
            let page = engine
                .cache
                .entries(&wanted, query.order.into(), after.as_ref(), limit)
                .await;
            (
                page.entries,
                page.next.map(|next| hex::encode(next.encode())),
            )
        }
        ListedTier::Disk => {
            let after = query.after.as_deref().map(|after| {
                let bytes = hex::decode(after)
                    .ok()
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map(EntryId::from_bytes).ok_or_else(bad_cursor)
            });
            let page = engine
                .cache
                .entries_on_disk(&wanted, after.transpose()?, limit)
                .await
                .map_err(|error| {
                    Problem::new(
                        http::StatusCode::SERVICE_UNAVAILABLE,
                        format!("the disk: {error}"),
                        "GET /v1/stats shows the state of the disk",
                    )
                })?;
            (
                page.entries,
                page.next.map(|next| hex::encode(next.to_bytes())),
            )
        }
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    Ok(Json(json!({ "entries": entries, "next": next })))
}

impl EntriesQuery {
    /// Scopes that an entry has to be in one of.
    fn scopes(
        &self,
        scopes_of_url: impl Fn(Scheme, &[u8], &[u8]) -> Vec<Scope>,
    ) -> Result<Vec<Scope>, Problem> {
        let one = |scope: Result<Scope, Problem>| scope.map(|it| vec![it]);
        let url = self.url.as_deref();
        let prefix = self.prefix.as_deref().map(scopes::prefix).map(one);
        let glob = self.glob.as_deref().map(scopes::glob).map(one);
        let host = self.host.as_deref().map(scopes::host).map(one);
        let tag = self.tag.as_deref().map(|name| Ok(vec![scopes::tag(name)]));
        let named = [
            url.map(|name| scopes::url(name, scopes_of_url)),
            prefix,
            glob,
            host,
            tag,
        ];
        let mut scopes = named.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        if scopes.len() > 1 {
            return Err(Problem::of_field(
                "url",
                "more than one of url, prefix, glob, host and tag",
                "use only one of them",
            ));
        }
        Ok(scopes.pop().unwrap_or_else(|| vec![Scope::Everything]))
    }

    fn limit(&self) -> Result<usize, Problem> {
        match self.limit {
            None => Ok(PAGE),
            Some(limit @ 1..=MAX_PAGE) => Ok(limit),
            Some(limit) => Err(Problem::of_field(
                "limit",
                format!("{limit} is not between 1 and {MAX_PAGE}"),
                "use `after` with the `next` of the previous page to get more",
            )),
        }
    }
}

impl From<EntryOrder> for ListingOrder {
    fn from(by: EntryOrder) -> Self {
        match by {
            EntryOrder::Key => Self::Key,
            EntryOrder::Size => Self::Size,
            EntryOrder::Age => Self::Age,
            EntryOrder::Hits => Self::Uses,
        }
    }
}

fn bad_cursor() -> Problem {
    Problem::of_field(
        "after",
        "`after` is not a position in this list",
        "use `next` of the previous page, with the same order and tier",
    )
}

fn entry(entry: &EntryInfo) -> Value {
    json!({
        "url": location(&entry.key),
        "variant": variant_id(entry.variant()),
        "varies_on": varies_on(&entry.vary, &entry.selection),
        "status": entry.status,
        "size": entry.size,
        "age_seconds": entry.age as f64 / 1000.0,
        "ttl_seconds": entry.ttl as f64 / 1000.0,
        "hits": entry.uses,
    })
}

/// Formats the id of a variant.
pub(crate) fn variant_id(number: u64) -> String {
    format!("{number:016x}")
}

/// Selecting request fields (`Vary`) and their values; secret values are omitted.
pub(crate) fn varies_on(names: &VaryNames, selection: &[u8]) -> Value {
    let values = vary::selected_values(names, selection).into_iter();
    values
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

/// Returns the URL of a key.
pub(crate) fn location(key: &[u8]) -> Option<String> {
    key::url_text(key)
}
