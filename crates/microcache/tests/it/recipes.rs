//! Every configuration in the documents, attacked: no visitor is given what is another one's, and none decides what the
//! others are given.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{ANY, Origin, Proxy, Reply};

/// A client that none of the documents trusts.
const STRANGER: &str = "127.0.0.9";
/// One that those trust that have a proxy in front on the same machine.
const PROXY: &str = "127.0.0.1";

/// Options that concern no visitor's pages, or need something that is not there.
const LEFT_OUT: [&str; 51] = [
    "listen",
    "admin",
    "admin_token_file",
    "access_log",
    "access_log_format",
    "access_log_sample",
    "log",
    "log_level",
    "disk",
    "redis",
    "memcached",
    "health_check",
    "drain_delay",
    "origin_http2",
    "push",
    "push_token_file",
    "push_directory",
    "push_history",
    "push_redis",
    "mercure_publisher_key_file",
    "mercure_subscriptions",
    "root",
    "otherwise",
    "php_root",
    "php_index",
    "php_deny",
    "acme",
    "acme_storage",
    "strict_transport_security",
    "redirects",
    "error_pages",
    "maintenance_page",
    "maintenance_allow",
    "warm_start_file",
    "respond",
    "include",
    "x_accel",
    "precompressed",
    "rate",
    "burst",
    "rate_by",
    "rate_of",
    "prefetch",
    "weight",
    "reload_on_change",
    "allow",
    "deny",
    "basic_auth",
    "forward_auth",
    "push_private",
    "push_forward_auth",
];

/// Fields of a visitor that must not reach any other. `@` is the secret.
const PERSONAL: [&[&str]; 25] = [
    &["Cookie: session=@"],
    &["Cookie: PHPSESSID=@"],
    &["Cookie: JSESSIONID=@"],
    &["Cookie: wordpress_logged_in_1=@"],
    &["Cookie: comment_author_1=@; comment_author_email_1=@"],
    &["Cookie: wp-postpass_1=@"],
    &["Cookie: woocommerce_items_in_cart=1; wp_woocommerce_session_1=@"],
    &["Cookie: wordpress_test_cookie=@"],
    &["Cookie: wordpress_test_cookie=1,session=@"],
    &["Cookie: theme=@"],
    &["Cookie: _shop_session=@; laravel_session=@; XSRF-TOKEN=@; csrftoken=@"],
    &["Cookie: currency=@"],
    &["Cookie: currency=EUR; session=@"],
    &["Cookie: _ga=\"1; session=@\""],
    &["Authorization: Bearer @"],
    &["X-Api-Key: @"],
    &["X-Shop-Token: @"],
    &["X-Country: @"],
    &["X-WP-Nonce: @", "Cookie: theme=@"],
    &["X-Requested-With: XMLHttpRequest", "Cookie: theme=@"],
    &["Range: bytes=0-9", "Cookie: session=@; theme=@"],
    &["If-None-Match: \"x\"", "Cookie: session=@; theme=@"],
    &["Cache-Control: no-cache", "Cookie: session=@; theme=@"],
    &["Cache-Control: no-store", "Cookie: session=@; theme=@"],
    &["X-Forwarded-User: @"],
];

/// Fields by which a visitor could decide what others see. Those that docs/caching-rules.md says are sent for everyone
/// (`User-Agent`, `Accept-Language`, `Via`, addresses) are not here.
const POISON: [&str; 19] = [
    "X-Forwarded-Host: @",
    "X-Forwarded-Proto: @",
    "X-Forwarded-Prefix: /@",
    "X-Forwarded-Port: @",
    "Forwarded: for=192.0.2.1;host=@;proto=@",
    "X-Original-URL: /@",
    "X-Rewrite-URL: /@",
    "X-HTTP-Method-Override: @",
    "X_Forwarded_Host: @",
    "Referer: http://@/",
    "Origin: http://@",
    "Accept: text/html, application/x-@",
    "Accept-Encoding: gzip, @",
    "Surrogate-Capability: @",
    "TE: @",
    "X-Unknown: @",
    "baggage: a=@",
    "Cookie: _ga=@",
    "Sec-CH-UA: @",
];

/// Parameters that some of the documents leave out of the key.
const PARAMETERS: [&str; 6] = [
    "utm_source=@",
    "utm%5Fsource=@",
    "fbclid=@",
    "x=@",
    "page=1;x=@",
    "preview=@",
];

/// Fields of visitors that a proxy or CDN passes on as they are, and that applications believe.
const SAID_BY_VISITORS: &str = "CF-Access-Jwt-Assertion CF-Connecting-IP CF-Connecting-IPv6 CF-Visitor Client-IP \
    Fastly-Client-IP Forwarded Forwarded-For Front-End-Https Proxy Proxy-Client-IP Remote-User SSL-Client-Cert \
    True-Client-IP WL-Proxy-SSL WL-Proxy-Client-IP X-Accel-Redirect X-Amzn-OIDC-Identity X-Auth-Request-User X-Client-IP \
    X-Cluster-Client-IP X-Envoy-Original-Path X-Forwarded X-Forwarded-Access-Token X-Forwarded-Email X-Forwarded-Groups \
    X-Forwarded-Method X-Forwarded-Path X-Forwarded-Port X-Forwarded-Prefix X-Forwarded-Scheme X-Forwarded-Server \
    X-Forwarded-Ssl X-Forwarded-Uri X-Forwarded-User X-Goog-Authenticated-User-Email X-Host X-HTTP-Host-Override \
    X-HTTP-Method X-HTTP-Method-Override X-Invoke-Path X-Matched-Path X-Method-Override X-Middleware-Subrequest \
    X-Now-Route-Matches X-Original-URL X-Originating-IP X-Proxy-URL X-ProxyUser-IP X-Real-IP X-Remote-Addr X-Remote-Group \
    X-Remote-IP X-Remote-User X-Rewrite-URL X-Scheme X-Sendfile-Type X-SSL-Client-Verify X-URL-Scheme X-WebAuth-User \
    X_Forwarded_Host X-Forwarded_Host";

struct Recipe {
    place: String,
    text: String,
    paths: Vec<String>,
}

#[test]
fn no_documented_configuration_shares_personal_pages() {
    let recipes = recipes();
    assert!(recipes.len() > 15, "{}", recipes.len());
    for recipe in recipes {
        let origin = Origin::start();
        let proxy = Proxy::with_config(&recipe.text.replace("ORIGIN", &origin.url()));
        origin.on(ANY).answer(|seen| {
            let body = format!("{:?}", seen.head);
            Reply::ok(&["Cache-Control: max-age=100"], body)
        });
        for path in &recipe.paths {
            attack(&proxy, &recipe, path);
        }
    }
}

#[test]
fn what_visitors_say_of_themselves_ends_behind_a_proxy_or_cdn() {
    let mut seen = 0;
    // The CDN's addresses are in another file.
    let is_behind = |recipe: &Recipe| {
        recipe.text.contains("\ntrusted_proxies") || recipe.place.contains("guides/cdn.md")
    };
    for recipe in recipes().into_iter().filter(is_behind) {
        seen += 1;
        let origin = Origin::start();
        origin
            .on(ANY)
            .answer(|request| Reply::ok(&[], format!("{:?}", request.head)));
        let mut text = recipe.text.replace("ORIGIN", &origin.url());
        if !text.contains("\ntrusted_proxies") {
            text.insert_str(0, "trusted_proxies = [\"127.0.0.1\"]\n");
        }
        let proxy = Proxy::with_config(&text);
        let said = SAID_BY_VISITORS.split_whitespace();
        let mut fields: Vec<_> = said.map(|name| format!("{name}: MARK")).collect();
        fields.push("X-Origin-Verify: choose-a-long-secret".to_owned());
        fields.push("X-Forwarded-For: 192.0.2.7".to_owned());
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        for cookie in ["Cookie: session=1", "Cookie: _ga=1"] {
            let response = proxy.get_from(PROXY, "/p", &[&fields[..], &[cookie]].concat());
            assert_eq!(response.status, 200, "{}", response.text());
            let given = response.text();
            assert!(!given.contains("MARK"), "{}: {given}", recipe.place);
            assert!(given.contains("192.0.2.7"), "{}: {given}", recipe.place);
        }
    }
    assert!(seen > 8, "{seen}");
}

/// The first configuration of a guide before an origin of ours.
pub(crate) fn configuration_of(guide: &str, origin: &Origin) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
    let recipe = of_document(&file.join(guide)).into_iter().next();
    let recipe = recipe.expect("a configuration");
    recipe.text.replace("ORIGIN", &origin.url())
}

/// Asks as one client after the other, at urls of their own that begin like this.
fn attack(proxy: &Proxy, recipe: &Recipe, path: &str) {
    let place = &recipe.place;
    let sources = [STRANGER, PROXY].into_iter().enumerate();
    let trusts = recipe.text.contains("trusted_proxies");
    for (source, from) in sources.take(1 + usize::from(trusts)) {
        let fields = PERSONAL.iter().map(|lines| lines.to_vec());
        let fields = fields.chain(POISON.iter().map(|&line| vec![line]));
        for (number, lines) in fields.enumerate() {
            let target = format!("{path}f{source}-{number}");
            let mark = format!("MARK{source}{number}");
            let lines: Vec<_> = lines.iter().map(|line| line.replace('@', &mark)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            proxy.get_from(from, &target, &lines);
            check(
                proxy,
                &target,
                &mark,
                &format!("{place}: {lines:?} from {from}"),
            );
        }
        for (number, parameter) in PARAMETERS.into_iter().enumerate() {
            let target = format!("{path}q{source}-{number}");
            let mark = format!("MARK{source}{number}");
            let sign = if target.contains('?') { '&' } else { '?' };
            let requested = format!("{target}{sign}{}", parameter.replace('@', &mark));
            proxy.get_from(from, &requested, &[]);
            check(
                proxy,
                &target,
                &mark,
                &format!("{place}: {requested} from {from}"),
            );
        }
    }
}

/// What another visitor is given there has nothing of it.
fn check(proxy: &Proxy, target: &str, mark: &str, what: &str) {
    let other = proxy.get_from("127.0.0.5", target, &[]);
    // Some routes redirect, or respond themselves.
    assert!(other.status < 500, "{what}: {}", other.text());
    let given = format!("{:?}{}", other.head, other.text());
    assert!(!given.contains(mark), "{what}: {given}");
}

/// All that are about pages of an application.
fn recipes() -> Vec<Recipe> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/guides", "docs/guides/sites"] {
        let entries = fs::read_dir(root.join(folder)).expect("there is such a folder");
        files.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    files.sort();
    let texts = files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "md"));
    texts.flat_map(of_document).collect()
}

fn of_document(file: &PathBuf) -> Vec<Recipe> {
    let text = fs::read_to_string(file).expect("a document");
    let blocks = text.split("```").skip(1).step_by(2);
    let configurations = blocks.filter_map(|block| block.strip_prefix("toml\n"));
    let all = configurations.enumerate().map(|(number, text)| Recipe {
        place: format!("{}, block {number}", file.display()),
        text: runnable(text),
        paths: paths(text),
    });
    all.collect()
}

/// The same configuration before an origin of ours.
fn runnable(text: &str) -> String {
    let is_kept = |line: &&str| {
        let name = line.split('=').next().unwrap_or_default().trim();
        !LEFT_OUT.contains(&name) && !line.trim().starts_with("{ url =")
    };
    // In a hole, `include` is not that of files.
    let mut is_in_hole = false;
    let lines = text.lines().filter(|line| {
        if line.starts_with('[') {
            is_in_hole = line.starts_with("[[routes.holes]]");
        }
        is_in_hole || is_kept(line)
    });
    let kept: Vec<String> = lines.map(before_ours).collect();
    let kept = kept.join("\n");
    if kept.contains("ORIGIN") {
        kept
    } else {
        format!("origin = \"ORIGIN\"\n{kept}")
    }
}

fn before_ours(line: &str) -> String {
    if line.starts_with("trusted_proxies") {
        return format!("trusted_proxies = [\"{PROXY}\"]");
    }
    let mut parts = line.split('"');
    let mut all = vec![parts.next().unwrap_or_default()];
    all.extend(parts.map(|part| {
        // Elsewhere https is that of a redirect.
        let is_secure = line.starts_with("servers") && part.starts_with("https://");
        if is_secure || part.starts_with("http://") || part.starts_with("fastcgi://") {
            "ORIGIN"
        } else {
            part
        }
    }));
    // One server is enough.
    all.join("\"")
        .replace("\"ORIGIN\", \"ORIGIN\"", "\"ORIGIN\"")
}

/// What urls of each route begin with, and of none.
fn paths(text: &str) -> Vec<String> {
    let mut paths = vec!["/p".to_owned()];
    for line in text.lines().filter(|line| line.starts_with("match")) {
        let quoted = line.split('"').skip(1).step_by(2);
        let taken = quoted.filter(|part| part.starts_with('/'));
        paths.extend(taken.map(|path| match path.strip_suffix('*') {
            Some(beginning) => beginning.to_owned(),
            None => format!("{path}?n="),
        }));
    }
    paths
}
