//! Pages with edge side includes, composed for each visitor (docs/edge.md, docs/decisions/edge.md).

mod attacks;
mod failing;
mod head;
mod kept;
mod model;
mod personal;
mod real;
mod slow;
mod streaming;
mod varnish;

use crate::support::{Client, Origin, Proxy, Reply, Response, Seen};

const HTML: &str = "Content-Type: text/html";
const ANNOUNCED: &str = "Surrogate-Control: content=\"ESI/1.0\"";
const SHARED: &str = "Cache-Control: public, s-maxage=100";
const PERSONAL: &str = "Cache-Control: private";

/// A configuration in which fragments are below `/f/`.
fn config(origin: &Origin, lines: &str) -> String {
    format!(
        "origin = \"{}\"\nedge = \"announced\"\nedge_paths = [\"/f/*\"]\n{lines}\n",
        origin.url()
    )
}

fn proxy(origin: &Origin, lines: &str) -> Proxy {
    Proxy::with_config(&config(origin, lines))
}

fn tag(source: &str) -> String {
    format!("<esi:include src=\"{source}\"/>")
}

/// A page that announces its tags, and is the same for all visitors.
fn page(body: &str) -> Reply {
    Reply::ok(&[HTML, ANNOUNCED, SHARED], body)
}

/// The same for one visitor.
fn personal_page(body: &str) -> Reply {
    Reply::ok(&[HTML, ANNOUNCED, PERSONAL], body)
}

/// A fragment that is the same for all visitors.
fn shared(body: &str) -> Reply {
    Reply::ok(&[HTML, SHARED], body)
}

/// The text of a fragment that shows a visitor's cookie.
fn shown(seen: &Seen) -> String {
    format!("[{}]", seen.field("cookie").unwrap_or("-"))
}

/// Has a fragment show the visitor's cookie.
fn show_cookie(origin: &Origin, target: &str, fields: &'static [&'static str]) {
    origin
        .on(target)
        .answer(move |seen| Reply::ok(fields, shown(seen)));
}

/// A request of the visitor of that name.
fn get_as(proxy: &Proxy, name: &str, target: &str) -> Response {
    proxy.get_with(target, &[&format!("Cookie: session={name}")])
}

/// The rest of a chunked body.
fn rest(client: &mut Client) -> String {
    let mut text = String::new();
    loop {
        match client.chunk() {
            chunk if chunk.is_empty() => return text,
            chunk => text.push_str(&chunk),
        }
    }
}
