//! Purge endpoints.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use bytes::Bytes;
use http::StatusCode;
use microcache_engine::cache::{Rule, Scope, Strength};
use microcache_policy::Scheme;
use microcache_policy::tags::MAX_TAG_LENGTH;
use microcache_proxy::{Handle, WarmPage, WarmSource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::entries::variant_id;
use crate::explain::request;
use crate::interface::Interface;
use crate::problem::Problem;
use crate::scopes;

/// Maximum number of names in one request.
const MAX_NAMES: usize = 256;

/// Body of `POST /v1/purges`. At least one name is required; all named are purged.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PurgeRequest {
    url: OneOrMany,
    /// Only these variants of the URL, by their ids in `GET /v1/entries`.
    variant: Option<OneOrMany>,
    /// Only the variants that requests with these field lines select.
    headers: Option<Vec<String>>,
    prefix: OneOrMany,
    glob: OneOrMany,
    host: OneOrMany,
    tag: OneOrMany,
    all: bool,
    soft: bool,
    /// Pages requested lately are fetched again at once.
    refresh: bool,
}

/// One name, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Several(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl OneOrMany {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// A purge in `GET /v1/purges` and in the response to a purge.
#[derive(Debug, Serialize)]
pub(crate) struct PurgeView {
    /// Unique id.
    id: String,
    /// The purged scope.
    #[serde(flatten)]
    scope: Value,
    /// True if entries become stale instead of being removed.
    soft: bool,
    /// Reason why the purge may not survive a restart or reach other processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    persist_error: Option<String>,
    /// Progress, if one purge is requested.
    #[serde(flatten)]
    progress: Option<PurgeProgress>,
}

#[derive(Debug, Serialize)]
struct PurgeProgress {
    /// Number of entries in memory that it removed or made stale.
    entries: u64,
    /// True once all entries in memory have been checked.
    swept: bool,
}

/// Handles `POST /v1/purges`. After the response, nothing stored or fetched before is served as fresh.
pub(crate) async fn purge(
    State(interface): State<Arc<Interface>>,
    request: Result<Json<PurgeRequest>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let Json(request) = request?;
    if interface.handle.is_handing_over() {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "this process is being replaced, and the new one would miss the purge",
            "retry on a new connection",
        ));
    }
    let engine = interface.handle.engine();
    let variants = request.variants(&interface).await?;
    let scopes_of_url =
        |scheme, host: &[u8], target: &[u8]| engine.scopes_of_url(scheme, host, target);
    let scopes = request.scopes(scopes_of_url, variants.as_deref())?;
    let strength = if request.soft {
        Strength::Soft
    } else {
        Strength::Hard
    };
    // Before the purge, which removes what is looked for.
    let wanted = if request.refresh {
        Some(interface.handle.popular(&scopes).await)
    } else {
        None
    };
    let named = scopes.into_iter().map(|scope| (scope, strength));
    let purged = engine.cache.purge(named).await;
    // The previous process, which may still serve, has applied the purge before the response is sent.
    interface.handle.purged_before(&purged.rules).await;
    let persist_error = purged.written.err().map(|error| error.to_string());
    let views = purged.rules.iter().map(|rule| PurgeView {
        persist_error: persist_error.clone(),
        ..PurgeView::of(rule)
    });
    let views: Vec<_> = views.collect();
    let mut answer = json!({ "purges": views });
    if let Some(pages) = wanted {
        answer["refresh"] = refresh(&interface.handle, pages);
    }
    Ok(Json(answer))
}

/// Starts to fetch the purged pages again.
fn refresh(handle: &Handle, pages: Vec<WarmPage>) -> Value {
    let urls = pages.len();
    if pages.is_empty() {
        return json!({ "urls": 0 });
    }
    match handle.warm("what was purged".to_owned(), WarmSource::Pages(pages), None) {
        Ok(id) => json!({ "urls": urls, "id": variant_id(id) }),
        Err(full) => json!({ "urls": 0, "error": full.to_string() }),
    }
}

/// Lists the active purges, newest first.
pub(crate) async fn list(State(interface): State<Arc<Interface>>) -> Json<Value> {
    const MOST: usize = 1000;
    let cache = &interface.handle.engine().cache;
    let rules = cache.newest_rules(MOST);
    let purges: Vec<_> = rules.iter().map(PurgeView::of).collect();
    Json(json!({ "purges": purges, "total": cache.live_rules() }))
}

/// Returns an active purge and its progress.
pub(crate) async fn one(
    State(interface): State<Arc<Interface>>,
    Path(id): Path<String>,
) -> Result<Json<PurgeView>, Problem> {
    let cache = &interface.handle.engine().cache;
    let number = u64::from_str_radix(&id, 16).ok();
    let progress = number.and_then(|number| cache.progress(number));
    let unknown = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no active purge `{id}`"),
            "GET /v1/purges lists the active purges; each is kept for at least ten minutes, or until everything is \
             purged",
        )
    };
    let progress = progress.ok_or_else(unknown)?;
    Ok(Json(PurgeView {
        progress: Some(PurgeProgress {
            entries: progress.entries,
            swept: progress.is_swept,
        }),
        ..PurgeView::of(&progress.rule)
    }))
}

impl PurgeRequest {
    /// Returns the selected variants of the URL; `None` for all variants.
    async fn variants(&self, interface: &Interface) -> Result<Option<Vec<u64>>, Problem> {
        let Some(url) = self.url_of_variants()? else {
            return Ok(None);
        };
        let Some(headers) = &self.headers else {
            return self.variants_by_name().map(Some);
        };
        let request = request::ExplainRequest::of_fields(url.to_owned(), headers.clone());
        // A purge of a URL covers both schemes, and so do its variants.
        let mut variants = Vec::new();
        for imagined in request.imagined_by_both()? {
            let found = interface.handle.variants_for(&imagined).await;
            variants.extend(found.map_err(|refused| request::refused(&refused))?);
        }
        variants.sort_unstable();
        variants.dedup();
        Ok(Some(variants))
    }

    fn variants_by_name(&self) -> Result<Vec<u64>, Problem> {
        let names = self.variant.as_ref().map_or(&[][..], OneOrMany::as_slice);
        names.iter().map(|name| scopes::variant(name)).collect()
    }

    /// Returns the URL whose variants are selected, if any.
    fn url_of_variants(&self) -> Result<Option<&str>, Problem> {
        let field = match (&self.variant, &self.headers) {
            (None, None) => return Ok(None),
            (Some(names), None) if names.as_slice().is_empty() => {
                let remedy = "add a variant, or omit `variant` to purge all variants";
                return Err(Problem::of_field(
                    "variant",
                    "the list of variants is empty",
                    remedy,
                ));
            }
            (Some(_), None) => "variant",
            (None, Some(_)) => "headers",
            (Some(_), Some(_)) => {
                let what = "`variant` and `headers` both select variants";
                return Err(Problem::of_field("variant", what, "use only one of them"));
            }
        };
        match self.url.as_slice() {
            [url] => Ok(Some(url)),
            urls => {
                let what = format!("`{field}` requires exactly one URL, found {}", urls.len());
                Err(Problem::of_field(
                    field,
                    what,
                    "set `url` to the URL of the variants",
                ))
            }
        }
    }

    /// Scopes of the request, limited to `variants` of its URL if given.
    fn scopes(
        &self,
        scopes_of_url: impl Fn(Scheme, &[u8], &[u8]) -> Vec<Scope>,
        variants: Option<&[u64]>,
    ) -> Result<Vec<Scope>, Problem> {
        let mut scopes = Vec::new();
        for name in self.url.as_slice() {
            for scope in scopes::url(name, &scopes_of_url)? {
                match (scope, variants) {
                    (Scope::Url { host, target }, Some(variants)) => {
                        scopes.extend(variants.iter().map(|&variant| Scope::Variant {
                            host: host.clone(),
                            target: target.clone(),
                            variant,
                        }));
                    }
                    (scope, _) => scopes.push(scope),
                }
            }
        }
        for name in self.prefix.as_slice() {
            scopes.push(scopes::prefix(name)?);
        }
        for name in self.glob.as_slice() {
            scopes.push(scopes::glob(name)?);
        }
        for name in self.host.as_slice() {
            scopes.push(scopes::host(name)?);
        }
        for name in self.tag.as_slice() {
            if name.is_empty() || name.len() > MAX_TAG_LENGTH {
                let what = format!(
                    "a tag has 1 to {MAX_TAG_LENGTH} bytes, found {}",
                    name.len()
                );
                return Err(Problem::of_field("tag", what, "use a tag of valid length"));
            }
            scopes.push(scopes::tag(name));
        }
        if self.all {
            scopes.push(Scope::Everything);
        }
        match scopes.len() {
            0 => Err(Problem::of_field(
                "url",
                "the request does not say what to purge",
                "set `url`, `prefix`, `glob`, `host` or `tag`, or set `all` to true",
            )),
            1..=MAX_NAMES => Ok(scopes),
            more => Err(Problem::of_field(
                "url",
                format!("{more} names in one request exceed the limit of {MAX_NAMES}"),
                "send several requests, or purge a common prefix or tag",
            )),
        }
    }
}

impl PurgeView {
    fn of(rule: &Rule) -> Self {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let at = |host: &Bytes, target: &Bytes| format!("{}{}", text(host), text(target));
        let scope = match &rule.scope {
            Scope::Everything => json!({"all": true}),
            Scope::Host(host) => json!({"host": text(host)}),
            Scope::Url { host, target } => json!({"url": at(host, target)}),
            Scope::Variant {
                host,
                target,
                variant,
            } => json!({"url": at(host, target), "variant": variant_id(*variant)}),
            Scope::Prefix { host, path } => json!({"prefix": at(host, path)}),
            Scope::Glob { host, pattern } => json!({"glob": at(host, pattern)}),
            Scope::Tag(name) => json!({"tag": text(name)}),
            Scope::Group { scheme, host, name } => json!({
                "group": text(name),
                "origin": format!("{}://{}", scheme.as_str(), text(host)),
            }),
        };
        Self {
            id: format!("{:016x}", rule.id),
            scope,
            soft: rule.strength == Strength::Soft,
            persist_error: None,
            progress: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(json: Value) -> Result<Vec<Scope>, Problem> {
        let request: PurgeRequest = serde_json::from_value(json).expect("a request");
        let scopes_of_url = |_, host: &[u8], target: &[u8]| {
            vec![Scope::Url {
                host: Bytes::copy_from_slice(host),
                target: Bytes::copy_from_slice(target),
            }]
        };
        let variants = request.variants_by_name()?;
        let variants = request.url_of_variants()?.map(|_| &variants[..]);
        request.scopes(scopes_of_url, variants)
    }

    #[test]
    fn of_one_url_variants_can_be_named() {
        let variant = |variant| Scope::Variant {
            host: Bytes::from_static(b"a"),
            target: Bytes::from_static(b"/x"),
            variant,
        };
        let named = scopes(json!({
            "url": "http://a/x",
            "variant": ["00000000000000ff", "ABCDEF0123456789"],
            "tag": "y",
        }));
        let tag = Scope::Tag(Bytes::from_static(b"y"));
        let expected = vec![variant(0xff), variant(0xabcd_ef01_2345_6789), tag];
        assert_eq!(named, Ok(expected));
        for wrong in [
            json!({"variant": "00000000000000ff"}),
            json!({"url": ["http://a/", "http://b/"], "variant": "00000000000000ff"}),
            json!({"prefix": "http://a/", "headers": ["Accept: text/html"]}),
            json!({"url": "http://a/", "variant": "00000000000000ff", "headers": ["A: b"]}),
            json!({"url": "http://a/", "variant": "ff"}),
            json!({"url": "http://a/", "variant": "+0000000000000ff"}),
            json!({"url": "http://a/", "variant": ""}),
            json!({"url": "http://a/", "variant": []}),
        ] {
            assert!(scopes(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_that_is_named_is_purged() {
        let named = scopes(json!({
            "url": "https://Example.org:443/a?b",
            "prefix": ["http://example.org/blog/", "http://example.org"],
            "glob": "http://example.org/*/a?*",
            "host": "example.org:8080",
            "tag": ["x", "y,z"],
            "all": true,
        }));
        let text = Bytes::from_static;
        let expected = [
            Scope::Url {
                host: text(b"example.org"),
                target: text(b"/a?b"),
            },
            Scope::prefixed(text(b"example.org"), text(b"/blog/")),
            Scope::prefixed(text(b"example.org"), text(b"/")),
            Scope::Glob {
                host: text(b"example.org"),
                pattern: text(b"/*/a?*"),
            },
            Scope::Host(text(b"example.org:8080")),
            Scope::Tag(text(b"x")),
            Scope::Tag(text(b"y,z")),
            Scope::Everything,
        ];
        assert_eq!(named, Ok(expected.into()));
    }

    #[test]
    fn a_purge_without_scopes_is_refused() {
        let many: Vec<_> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        for wrong in [
            json!({}),
            json!({"soft": true}),
            json!({"all": false}),
            json!({"tag": []}),
            json!({"tag": ""}),
            json!({"tag": "x".repeat(MAX_TAG_LENGTH + 1)}),
            json!({"tag": many}),
            json!({"tag": "x", "url": "/relative"}),
            json!({"host": "https://example.org"}),
            json!({"glob": "http://*.example.org/"}),
            json!({"glob": format!("http://a/{}", "*".repeat(1024))}),
        ] {
            assert!(scopes(wrong.clone()).is_err(), "{wrong}");
        }
        for unknown in [json!({"urls": []}), json!({"soft": 1}), json!({"url": 1})] {
            let request = serde_json::from_value::<PurgeRequest>(unknown.clone());
            assert!(request.is_err(), "{unknown}");
        }
    }
}
