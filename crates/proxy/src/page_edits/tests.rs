use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::origin::BoxFuture;
use microcache_engine::{Body, Frame, Origin, OriginError, OriginRequest, OriginResponse};
use microcache_policy::FieldsBuf;
use microcache_policy::edge::{CAPABILITY, EdgeMode, PagePiece, PagePieces};
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;

use super::EditingOrigin;
use crate::config::page_edits::PageEdits;
use crate::config::{Config, Input};
use crate::observe::collected;

/// An application with one page, which arrives in these pieces.
struct Application {
    fields: &'static str,
    status: u16,
    pieces: Vec<Bytes>,
    requests: Arc<Mutex<Vec<String>>>,
}

struct Pieces(std::vec::IntoIter<Bytes>);

impl microcache_engine::Source for Pieces {
    fn poll_frame(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, microcache_engine::BodyError>>> {
        std::task::Poll::Ready(self.0.next().map(|piece| Ok(Frame::Data(piece))))
    }
}

fn fields(lines: &str) -> FieldsBuf {
    let mut fields = FieldsBuf::new();
    for line in lines.lines() {
        let (name, value) = line.split_once(": ").expect(line);
        fields.push(name, value);
    }
    fields
}

impl Origin for Application {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let lines = String::from_utf8(request.fields.into_block()).expect("ASCII");
        self.requests.lock().push(lines);
        let response = OriginResponse {
            status: self.status,
            fields: fields(self.fields),
            length: Some(self.pieces.iter().map(|it| it.len() as u64).sum()),
            body: match request.method {
                Method::HEAD => Body::Empty,
                _ => Body::Stream(Box::new(Pieces(self.pieces.clone().into_iter()))),
            },
            tunnel: None,
            waited: 0,
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// A response of an application whose pages are changed.
struct Changed {
    head: String,
    length: Option<u64>,
    body: String,
    is_storable: bool,
    request: String,
    log: Vec<String>,
}

/// A page, its application and its route.
struct Case {
    route: &'static str,
    tags: EdgeMode,
    target: &'static str,
    asked: &'static str,
    fields: &'static str,
    status: u16,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            route: "",
            tags: EdgeMode::Off,
            target: "/shop/page",
            asked: "Accept-Encoding: gzip\nSurrogate-Capability: evil=\"ESI/1.0\"",
            fields: "Content-Type: text/html; charset=utf-8",
            status: 200,
        }
    }
}

fn edits(route: &str, tags: EdgeMode) -> PageEdits {
    let text = format!("origin = \"http://o:3000\"\n[[routes]]\n{route}");
    let input = Input {
        file: Some(("f", &text)),
        ..Input::default()
    };
    let config = Config::read(input).unwrap_or_else(|report| panic!("{route}: {report}"));
    let route = config.routes.into_iter().find(|it| it.name == "route 1");
    let edits = route.expect("a route").page_edits;
    PageEdits { tags, ..edits }
}

impl Case {
    fn changes(&self, pieces: &[&[u8]]) -> Changed {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(self.changed(pieces))
    }

    fn page(&self, page: &str) -> String {
        self.changes(&[page.as_bytes()]).body
    }

    async fn changed(&self, pieces: &[&[u8]]) -> Changed {
        let requests = Arc::default();
        let application = Arc::new(Application {
            fields: self.fields,
            status: self.status,
            pieces: pieces.iter().map(|it| Bytes::copy_from_slice(it)).collect(),
            requests: Arc::clone(&requests),
        });
        let edits = edits(self.route, self.tags);
        let paths = edits.token_paths().collect();
        let (notices, log) = collected();
        let observers = (&notices, &Arc::default(), "shop");
        let origin = EditingOrigin::before(application, &edits, &paths, observers);
        let target = Bytes::from_static(self.target.as_bytes());
        let mut request =
            OriginRequest::bare(Method::GET, Bytes::from_static(b"shop.example"), target);
        request.fields = fields(self.asked);
        let response = origin.fetch(request).await.expect("a response");
        let (mut body, mut text) = (response.body, Vec::new());
        while let Some(frame) = body.frame().await {
            if let Ok(Frame::Data(data)) = frame {
                assert!(!data.is_empty());
                text.extend_from_slice(&data);
            }
        }
        Changed {
            head: String::from_utf8(response.fields.into_block()).expect("ASCII"),
            length: response.length,
            body: String::from_utf8_lossy(&text).into_owned(),
            is_storable: !body.forbids_storing(),
            request: requests.lock().concat(),
            log: log.lock().clone(),
        }
    }
}

const SCRIPT: &str = "<script type=\"module\" src=\"/.well-known/microcache/include.js\"></script>";
const HOLE: &str = "holes = [{ select = \"#cart\", include = \"/cart-box?a=1&b=2\" }]";
const BROWSER: &str = "edge_assembly = \"browser\"";

/// The fragments that are composed into a page.
fn fragments(page: &str) -> Vec<String> {
    let pieces = PagePieces::of(page.as_bytes()).unwrap_or_default();
    let parts = pieces.parts().filter_map(|piece| match piece {
        PagePiece::Hole(include) => Some(include.source().escape_ascii().to_string()),
        PagePiece::Text(_) => None,
    });
    parts.collect()
}

#[test]
fn tags_become_elements_of_the_browser() {
    let case = Case {
        route: BROWSER,
        tags: EdgeMode::Always,
        ..Case::default()
    };
    let element =
        |attributes: &str| format!("<microcache-include {attributes}></microcache-include>");
    for (page, expected) in [
        ("<p>a</p>", "<p>a</p>".to_owned()),
        (
            "<p><esi:include src=\"/_fragment?a=1&amp;b=2\" alt='/_fragment?c'/></p>",
            format!(
                "<p>{SCRIPT}{}</p>",
                element("src=\"/_fragment?a=1&amp;b=2\" alt=\"/_fragment?c\"")
            ),
        ),
        (
            "<esi:include src=http://shop.example/page_cache/block/a /><b></b><esi:include src=/_fragment>",
            format!(
                "{SCRIPT}{}<b></b>{}",
                element("src=\"/page_cache/block/a\""),
                element("src=\"/_fragment\"")
            ),
        ),
        (
            "<!--# block name=\"x\" --><i>\u{e9}</i><!--# endblock --><!--#include virtual=\"/_fragment\" stub=\"x\" -->",
            format!(
                "{SCRIPT}<microcache-include src=\"/_fragment\"><i>\u{e9}</i></microcache-include>"
            ),
        ),
        (
            "a<esi:remove>b</esi:remove><esi:comment text=\"c\"/>",
            "a".to_owned(),
        ),
        // Fragments that are not listed, and other hosts.
        ("a<esi:include src=\"/account\"/>b", "ab".to_owned()),
        (
            "a<esi:include src=\"//evil.example/_fragment\"/>b",
            "ab".to_owned(),
        ),
        (
            "<esi:include src=\"/_fragment\" alt=\"/account\"/>",
            format!("{SCRIPT}{}", element("src=\"/_fragment\"")),
        ),
    ] {
        assert_eq!(case.page(page), expected, "{page}");
    }
    let other = Case {
        tags: EdgeMode::Announced,
        ..case
    };
    assert_eq!(
        other.page("<esi:include src=/_fragment>"),
        "<esi:include src=/_fragment>"
    );
}

#[test]
fn tags_in_other_places_become_no_elements() {
    let case = Case {
        route: BROWSER,
        tags: EdgeMode::Always,
        ..Case::default()
    };
    for page in [
        "<a title=\"<esi:include src='/_fragment?/onfocus=alert(1)//'/>\">b</a>",
        "<script>let a = \"<esi:include src='/_fragment'/>\";</script>",
        "<script type=application/json>{\"a\":\"<esi:include src='/_fragment'/>\"}</script>",
        "<textarea><esi:include src='/_fragment'/></textarea>",
        "<!-- <esi:include src='/_fragment'/> -->",
        "<Microcache-Include src=\"/account\"></Microcache-Include>",
        "<microcache-include slot=0 src=\"/account\">",
        "<microcache-<esi:x/>include src=/account>",
        "<mic<esi:remove><esi:include src=/_fragment></esi:remove>rocache-include src=/account>",
        "<microcache-include<esi:comment/> src=/account>",
        "<!--# block name=a --><microcache-include src=/account><!--# endblock --><!--# include virtual=/_fragment stub=a -->",
    ] {
        let changed = case.page(page);
        assert!(
            !changed.contains("<microcache-include src=/account"),
            "{page}: {changed}"
        );
        if page.contains("stub") {
            continue;
        }
        assert!(
            !changed.contains("<microcache-include src"),
            "{page}: {changed}"
        );
        assert!(!changed.contains("</script><micro"), "{page}: {changed}");
        // The quotes around it stay the only ones.
        assert_eq!(
            changed.matches('"').count(),
            page.matches('"').count(),
            "{page}: {changed}"
        );
    }
}

#[test]
fn the_content_of_holes_is_a_fragment() {
    let page = "<div id=cart class=x>3 <b>items</b></div><p id=other>a</p>";
    let server = Case {
        route: HOLE,
        ..Case::default()
    };
    assert_eq!(
        server.page(page),
        "<div id=cart class=x><esi:include src=\"/cart-box?a=1&amp;b=2\"/></div><p id=other>a</p>"
    );
    assert_eq!(fragments(&server.page(page)), ["/cart-box?a=1&b=2"]);
    let browser = Case {
        route: "edge_assembly = \"browser\"\nholes = [{ select = \"#cart\", include = \"/cart-box\" }]",
        ..Case::default()
    };
    assert_eq!(
        browser.page(page),
        format!(
            "{SCRIPT}<div id=cart class=x><microcache-include src=\"/cart-box\">3 <b>items</b></microcache-include>\
             </div><p id=other>a</p>"
        )
    );
    for same in [
        "<p>a</p>",
        "",
        "<!-- <div id=cart>a</div> -->",
        "<script>'<div id=cart>'</script>",
    ] {
        assert_eq!(server.page(same), same);
        assert_eq!(browser.page(same), same);
    }
}

#[test]
fn only_our_own_tags_are_composed() {
    let case = Case {
        route: HOLE,
        ..Case::default()
    };
    let evil = "<esi:include src='/stolen'/>";
    for page in [
        format!("<p>{evil}</p>"),
        format!("<div id=cart>{evil}</div>"),
        format!("<script>'{evil}'</script>"),
        format!("<a title=\"{evil}\">{evil}</a>"),
        "<!--#include virtual=\"/stolen\" -->".to_owned(),
        format!("<!--esi {evil} -->"),
        "<es<esi:comment/>i:include src=/stolen>".to_owned(),
        "<es<div id=cart></div>i:include src=/stolen>".to_owned(),
        format!("<esi:remove>{evil}"),
    ] {
        let changed = case.page(&format!("{page}<div id=cart>x</div>"));
        let own = fragments(&changed);
        assert!(!own.is_empty(), "{page}: {changed}");
        assert!(
            own.iter().all(|it| it == "/cart-box?a=1&b=2"),
            "{page}: {changed}"
        );
        for at in 1..page.len() {
            let (first, second) = page.split_at(at);
            let divided = case.changes(&[first.as_bytes(), second.as_bytes()]).body;
            assert_eq!(divided, case.page(&page), "{page} at {at}");
        }
    }
    // With the origin's own tags, the operator has chosen them.
    let announced = Case {
        route: HOLE,
        tags: EdgeMode::Announced,
        fields: "Content-Type: text/html\nSurrogate-Control: max-age=5, content=\"ESI/1.0\"",
        ..Case::default()
    };
    let page = "<esi:include src=/_fragment /><div id=cart>x</div>";
    assert_eq!(
        fragments(&announced.page(page)),
        ["/_fragment", "/cart-box?a=1&b=2"]
    );
}

#[test]
fn many_holes_are_bounded() {
    let page = "<i class=x>abc</i>".repeat(10_000);
    for (route, most) in [
        ("holes = [{ select = \".x\", include = \"/a\" }]", 64),
        (
            "edge_assembly = \"browser\"\nholes = [{ select = \".x\", include = \"/a\" }]",
            64,
        ),
    ] {
        let case = Case {
            route,
            ..Case::default()
        };
        let changed = case.page(&page);
        assert_eq!(changed.matches(" src=\"/a\"").count(), most, "{route}");
        assert_eq!(
            changed.matches("<i class=x></i>").count(),
            10_000 - most,
            "{route}"
        );
    }
}

#[test]
fn the_head_is_that_of_the_changed_page() {
    let all = "Content-Type: text/html\nETag: \"a\"\nAccept-Ranges: bytes\nContent-MD5: x\nDigest: x\nRepr-Digest: x\n\
        Content-Digest: x\nLast-Modified: b\nCache-Control: max-age=60";
    let server = Case {
        route: HOLE,
        fields: all,
        ..Case::default()
    };
    let changed = server.changes(&[b"<div id=cart>a</div>"]);
    assert_eq!(
        changed.head,
        "Content-Type: text/html\r\nLast-Modified: b\r\nCache-Control: max-age=60\r\n\
         Surrogate-Control: content=\"ESI/1.0\"\r\nETag: W/\"a\"\r\n"
    );
    assert_eq!(changed.length, None);
    assert_eq!(changed.request, "Accept-Encoding: identity\r\n");
    let browser = Case {
        route: BROWSER,
        tags: EdgeMode::Announced,
        fields: "Content-Type: text/html\nSurrogate-Control: max-age=5, content=\"ESI/1.0\"",
        ..Case::default()
    };
    let changed = browser.changes(&[b"a"]);
    assert_eq!(
        changed.head,
        "Content-Type: text/html\r\nSurrogate-Control: max-age=5\r\nMicrocache-Includes: 1\r\n"
    );
    let asked = format!("Accept-Encoding: identity\r\nSurrogate-Capability: {CAPABILITY}\r\n");
    assert_eq!(changed.request, asked);
}

#[test]
fn what_is_no_page_stays() {
    for (status, fields) in [
        (200, "Content-Type: application/json"),
        (206, "Content-Type: text/html"),
        (
            200,
            "Content-Type: text/plain\nSurrogate-Control: content=\"ESI/1.0\"",
        ),
    ] {
        let case = Case {
            route: HOLE,
            status,
            fields,
            ..Case::default()
        };
        let changed = case.changes(&[b"<div id=cart>a</div>"]);
        assert_eq!(changed.body, "<div id=cart>a</div>", "{fields}");
        assert!(!changed.head.contains("Surrogate-Control"), "{fields}");
        assert_eq!(changed.length, Some(20));
    }
    for (asked, tag, expected) in [
        ("If-None-Match: W/\"a\"", "ETag: \"a\"", "ETag: W/\"a\"\r\n"),
        ("If-None-Match: \"a\"", "ETag: \"a\"", "ETag: \"a\"\r\n"),
        (
            "If-None-Match: W/\"b\"",
            "ETag: \"a\"\nSurrogate-Control: no-store",
            "ETag: \"a\"\r\n",
        ),
    ] {
        let case = Case {
            route: HOLE,
            status: 304,
            asked,
            fields: tag,
            ..Case::default()
        };
        assert_eq!(case.changes(&[]).head, expected, "{asked}");
    }
}

#[test]
fn a_page_that_cannot_be_changed_is_whole_and_not_stored() {
    for fields in [
        "Content-Type: text/html\nContent-Encoding: gzip\nCache-Control: public, max-age=60\nCDN-Cache-Control: max-age=9",
        "Content-Type: text/html; charset=UTF-16\nCache-Control: public",
        "Content-Type: text/html; charset=\"iso-2022-jp\"",
    ] {
        let case = Case {
            route: HOLE,
            fields,
            ..Case::default()
        };
        let changed = case.changes(&[b"<div id=cart>a</div>"]);
        assert_eq!(changed.body, "<div id=cart>a</div>");
        assert!(
            changed
                .head
                .contains("Cache-Control: private, no-store\r\n"),
            "{}",
            changed.head
        );
        assert!(!changed.head.contains("max-age"), "{}", changed.head);
        assert_eq!(changed.log.len(), 1, "{:?}", changed.log);
    }
    let case = Case {
        route: "holes = [{ select = \"#cart\", include = \"/a\" }]\ntokens = [{ variable = \"t\", from = \"/t\" }]",
        ..Case::default()
    };
    let huge = "x".repeat(3 << 20);
    for (page, is_script) in [
        (
            format!("<div id=cart title=\"{huge}\"><esi:include src=/a /><div id=cart>b"),
            false,
        ),
        (format!("<b>{}</b>", "<i>".repeat(100_000)), false),
        (format!("<script>t = 'a'; {huge}</script>c"), true),
    ] {
        let pieces: Vec<&[u8]> = page.as_bytes().chunks(10_000).collect();
        let changed = case.changes(&pieces);
        assert!(!changed.is_storable);
        assert_eq!(changed.log.len(), 1, "{:?}", changed.log);
        if is_script {
            assert!(changed.body == page);
        } else {
            // Tags stay without a meaning.
            assert_eq!(fragments(&changed.body).len(), 0);
            assert_eq!(changed.body.len(), page.len());
        }
    }
}

#[test]
fn tokens_are_removed() {
    let case = Case {
        route: "tokens = [{ select = \"input[name=_token]\", from = \"/token\" }, \
            { select = \"meta[name=csrf-token]\", attribute = \"content\", from = \"/token\" }, \
            { variable = \"wp.nonce\", from = \"/nonce?a\" }]",
        ..Case::default()
    };
    let script = "<script type=\"module\" src=\"/.well-known/microcache/include.js?tokens\" data-microcache-tokens=\"\
        [{&quot;select&quot;:&quot;input[name=_token]&quot;,&quot;attribute&quot;:&quot;value&quot;,&quot;from&quot;:&quot;/token&quot;},\
        {&quot;select&quot;:&quot;meta[name=csrf-token]&quot;,&quot;attribute&quot;:&quot;content&quot;,&quot;from&quot;:&quot;/token&quot;},\
        {&quot;variable&quot;:&quot;wp.nonce&quot;,&quot;from&quot;:&quot;/nonce?a&quot;}]\"></script>";
    for (page, expected) in [
        (
            "<form><input name=\"_token\" value='s3cret'><input name=a value=b></form>",
            format!(
                "<form>{script}<input name=\"_token\" value=\"\"><input name=a value=b></form>"
            ),
        ),
        (
            "<meta name=csrf-token content=a><input name=_token value=b><input name=_token>",
            format!(
                "{script}<meta name=csrf-token content=\"\"><input name=_token value=\"\"><input name=_token>"
            ),
        ),
        (
            "<script>\u{e9}; var wp = {\"nonce\":\"3f\"};</script><script>var b;</script>",
            format!(
                "<script>\u{e9}; var wp = {{\"nonce\":\"\"}};</script>{script}<script>var b;</script>"
            ),
        ),
        (
            "<script>var nonce = 'a'</script>",
            "<script>var nonce = 'a'</script>".to_owned(),
        ),
    ] {
        assert_eq!(case.page(page), expected, "{page}");
        let bytes: Vec<&[u8]> = page.as_bytes().chunks(1).collect();
        assert_eq!(case.changes(&bytes).body, expected, "{page}");
    }
    // The visitor's own are as the application sends them, and never stored.
    let source = Case {
        target: "/token?x",
        fields: "Content-Type: text/html\nCache-Control: public, max-age=60\nCDN-Cache-Control: max-age=60",
        ..case
    };
    let changed = source.changes(&[b"<input name=_token value=a>"]);
    assert_eq!(changed.body, "<input name=_token value=a>");
    assert_eq!(
        changed.head,
        "Content-Type: text/html\r\nCache-Control: private, no-store\r\n"
    );
}

#[test]
fn a_token_that_is_waited_for_is_a_tag() {
    let case = Case {
        route: "tokens = [{ select = \"input[name=_token]\", from = \"/token?a&b\", wait = true }, \
            { variable = \"nonce\", from = \"/nonce\", wait = true }]",
        ..Case::default()
    };
    let page =
        "<input name=_token value=a><script>nonce = \"b\"</script><esi:include src=/token />";
    let changed = case.changes(&[page.as_bytes()]);
    assert_eq!(fragments(&changed.body), ["/token?a&b", "/nonce"]);
    assert_eq!(
        changed.body,
        "<input name=_token value=\"<esi:include src='/token?a&amp;b' wait='true'/>\">\
         <script>nonce = \"<esi:include src='/nonce' wait='true'/>\"</script><ESI:include src=/token />"
    );
    assert!(
        changed
            .head
            .contains("Surrogate-Control: content=\"ESI/1.0\"")
    );
}

proptest! {
    #[test]
    fn a_page_may_arrive_in_any_pieces(
        parts in vec("(<div id=cart>|</div>|<esi:include src='/_fragment'/>|<script>|</script>|<!--|-->|<!--esi|<!--#include virtual='/_fragment'-->|nonce='a'|<input name=t value=b>|<|\"|>|a|\u{e9}|<microcache-include src=/x>|<esi:remove>|</esi:remove>|<svg>|<p title=\")", 0..20),
        mut ends in vec(0..400_usize, 0..12),
        mode in 0..3_usize,
    ) {
        let page = parts.concat().into_bytes();
        ends.retain(|end| *end < page.len());
        ends.sort_unstable();
        let mut pieces = Vec::new();
        let mut at = 0;
        for end in ends.into_iter().chain([page.len()]) {
            if end > at {
                pieces.push(&page[at..end]);
            }
            at = end;
        }
        let (route, tags) = [
            ("holes = [{ select = \"#cart\", include = \"/a\" }]\ntokens = [{ variable = \"nonce\", from = \"/n\" }]", EdgeMode::Off),
            ("edge_assembly = \"browser\"\nholes = [{ select = \"#cart\", include = \"/a\" }]", EdgeMode::Always),
            ("tokens = [{ select = \"input\", from = \"/n\", wait = true }]", EdgeMode::Always),
        ][mode];
        let case = Case { route, tags, ..Case::default() };
        let whole = case.changes(&[&page]).body;
        prop_assert_eq!(case.changes(&pieces).body, whole);
    }
}
