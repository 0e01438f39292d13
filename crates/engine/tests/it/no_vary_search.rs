//! `No-Vary-Search`: requests for equivalent urls share an entry, and the origin sees what is keyed.

use std::sync::{Arc, Mutex};

use http::Method;
use microcache_engine::cache::{Rule, Scope, Strength};
use microcache_engine::{
    Body, BoxFuture, Engine, Origin, OriginError, OriginRequest, OriginResponse,
};
use microcache_policy::{Rules, Scheme};
use microcache_store::tiers::scripted::ScriptedTier;
use microcache_store::{AnyTier, TierLimits, Tiers};
use tokio::runtime::Handle;
use tokio::time::{Duration, sleep};

use crate::asking::{HOST, ask, fields_of, read};
use crate::support;

/// Answers with the target, and the fields of the first rule whose text it contains.
#[derive(Default)]
struct Site {
    asked: Mutex<Vec<String>>,
    rules: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Origin for Site {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let target = String::from_utf8_lossy(&request.target).into_owned();
        let rules = self.rules.lock().expect("no panic").clone();
        let fields = rules.iter().find(|(text, _)| target.contains(text));
        let fields = fields_of(fields.map_or("", |(_, fields)| fields));
        let confirms = request.fields.fields().contains("if-none-match");
        self.asked.lock().expect("no panic").push(target.clone());
        Box::pin(async move {
            Ok(OriginResponse {
                status: if confirms { 304 } else { 200 },
                fields,
                length: None,
                body: if confirms {
                    Body::Empty
                } else {
                    Body::Full(target.into())
                },
                tunnel: None,
                waited: 0,
            })
        })
    }
}

struct World {
    engine: Arc<Engine>,
    site: Arc<Site>,
}

const UTM: &str = "Cache-Control: max-age=100\r\nNo-Vary-Search: params=(\"utm\")\r\nETag: \"a\"";
const PLAIN: &str = "Cache-Control: max-age=100";

impl World {
    fn new(fields: &[(&'static str, &'static str)], tiers: Tiers) -> Self {
        let site = Arc::new(Site::default());
        let route = support::route(Arc::clone(&site) as Arc<_>, Rules::default());
        let engine = support::engine(support::settings(), route, tiers);
        let world = Self { engine, site };
        world.set(fields);
        world
    }

    fn set(&self, fields: &[(&'static str, &'static str)]) {
        *self.site.rules.lock().expect("no panic") = fields.to_vec();
    }

    /// The target that the page was made for.
    async fn get_with(&self, target: &str, fields: &str) -> String {
        let page = read(ask(&self.engine, &Method::GET, target, fields).await).await;
        String::from_utf8(page).expect("text")
    }

    async fn get(&self, target: &str) -> String {
        self.get_with(target, "").await
    }

    /// The targets that the origin was asked for since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.site.asked.lock().expect("no panic"))
    }

    async fn purge(&self, target: &str) {
        let (host, target) = (HOST.as_bytes(), target.as_bytes());
        let scopes = self.engine.scopes_of_url(Scheme::Http, host, target);
        let scopes = scopes.into_iter().map(|scope| (scope, Strength::Hard));
        self.engine
            .cache
            .purge(scopes)
            .await
            .written
            .expect("nothing to write");
    }
}

#[tokio::test]
async fn after_one_answer_equivalent_urls_share_an_entry() {
    let world = World::new(&[("", UTM)], Tiers::default());
    assert_eq!(
        world.get("/p?utm=1").await,
        "/p?utm=1",
        "nothing is known yet"
    );
    for target in ["/p?utm=2", "/p?utm=3&", "/p", "/p?ut%6D=4"] {
        assert_eq!(world.get(target).await, "/p", "{target}");
    }
    assert_eq!(world.get("/p?id=1&utm=5").await, "/p?id=1");
    assert_eq!(world.get("/p?id=1").await, "/p?id=1");
    assert_eq!(world.get("/q?utm=5").await, "/q?utm=5", "another path");
    assert_eq!(world.asked(), ["/p?utm=1", "/p", "/p?id=1", "/q?utm=5"]);
}

#[tokio::test]
async fn an_entry_of_the_simplest_url_answers_at_once() {
    let world = World::new(&[("", UTM)], Tiers::default());
    for target in ["/p", "/p?utm=1", "/p?utm=2"] {
        assert_eq!(world.get(target).await, "/p", "{target}");
    }
    assert_eq!(world.asked(), ["/p"]);
}

#[tokio::test]
async fn any_equivalent_url_purges_and_invalidates() {
    let world = World::new(&[("", UTM)], Tiers::default());
    world.get("/p?id=1").await;
    world.get("/p?id=2").await;
    world.asked();
    world.purge("/p?utm=7&id=1").await;
    assert_eq!(world.get("/p?id=1&utm=8").await, "/p?id=1");
    assert_eq!(world.get("/p?id=2&utm=8").await, "/p?id=2");
    assert_eq!(world.asked(), ["/p?id=1"]);
    read(ask(&world.engine, &Method::POST, "/p?id=2&utm=9", "").await).await;
    world.get("/p?id=2").await;
    assert_eq!(world.asked(), ["/p?id=2&utm=9", "/p?id=2"]);
    // As another process has issued it, which knows of no note.
    let (host, target) = (HOST.into(), "/p?id=2&utm=10".into());
    let rule = Rule {
        id: 7,
        scope: Scope::Url { host, target },
        strength: Strength::Hard,
        at: world.engine.clock.now(),
    };
    world.engine.cache.apply_purge(&rule);
    world.get("/p?id=2").await;
    assert_eq!(world.asked(), ["/p?id=2"]);
}

#[tokio::test]
async fn a_response_that_states_nothing_answers_its_own_url_only() {
    let world = World::new(&[("id=2", PLAIN), ("", UTM)], Tiers::default());
    world.get("/p").await;
    for _ in 0..2 {
        assert_eq!(world.get("/p?id=2&utm=1").await, "/p?id=2&utm=1");
        assert_eq!(world.get("/p?id=2").await, "/p?id=2");
        assert_eq!(world.get("/p?id=1&utm=1").await, "/p?id=1");
    }
    let asked = ["/p", "/p?id=2", "/p?id=2&utm=1", "/p?id=1"];
    assert_eq!(world.asked(), asked);
    // The application states something else from now on.
    world.set(&[(
        "",
        "Cache-Control: max-age=100\r\nNo-Vary-Search: except=(\"utm\")",
    )]);
    world.get("/p?id=3").await;
    assert_eq!(world.get("/p?id=1&utm=1").await, "/p?utm=1");
    assert_eq!(world.get("/p?id=9&utm=1").await, "/p?utm=1");
    assert_eq!(world.asked(), ["/p?id=3", "/p?utm=1"]);
}

#[tokio::test]
async fn only_stored_and_shared_responses_teach() {
    for fields in [
        "Cache-Control: private, max-age=100\r\nNo-Vary-Search: params=(\"utm\")",
        "Cache-Control: no-store\r\nNo-Vary-Search: params=(\"utm\")",
        "Cache-Control: max-age=100\r\nSet-Cookie: a=b\r\nNo-Vary-Search: params=(\"utm\")",
        "Cache-Control: max-age=100\r\nNo-Vary-Search: params=?1",
    ] {
        let world = World::new(&[("", fields)], Tiers::default());
        world.get("/p?utm=1").await;
        world.get_with("/p?utm=2", "Cookie: session=1").await;
        assert_eq!(world.get("/p?utm=3").await, "/p?utm=3", "{fields}");
    }
    // A visitor's own page is asked for by its own url, and a personal one is not shared.
    let world = World::new(&[("", UTM)], Tiers::default());
    world.get("/p?utm=1").await;
    let own = world.get_with("/p?utm=2", "Cookie: session=1").await;
    assert_eq!(own, "/p?utm=2");
    world.set(&[("", "Cache-Control: private")]);
    for _ in 0..2 {
        assert_eq!(world.get("/p?id=1&utm=3").await, "/p?id=1&utm=3");
    }
}

#[tokio::test]
async fn a_record_of_a_tier_teaches_and_is_validated_for_other_urls() {
    let tier = ScriptedTier::new(0, 0);
    let tiers = || {
        let tier = AnyTier::Local(Arc::new(tier.clone()));
        Tiers::new(vec![tier], TierLimits::default(), &Handle::current())
    };
    let first = World::new(&[("", UTM)], tiers());
    first.get("/p").await;
    first.engine.cache.settle().await;
    let second = World::new(&[("", UTM)], tiers());
    assert_eq!(second.get("/p").await, "/p");
    assert_eq!(second.asked(), [""; 0], "it was in the tier");
    // A purge of another url may have missed it. Times are in milliseconds.
    sleep(Duration::from_millis(2)).await;
    assert_eq!(second.get("/p?utm=1").await, "/p");
    assert_eq!(second.get("/p?utm=2").await, "/p");
    assert_eq!(second.asked(), ["/p"]);
}
