//! Access control of the operators' interface.
//!
//! With a secret, every request has to carry it. Without one, only local programs are accepted. Pages
//! in a browser on this machine are rejected, although their requests are local: they are recognized
//! by `Origin`, by `Sec-Fetch-Site`, and by a `Host` that is a name (DNS rebinding). So are requests that
//! a proxy on this machine forwards for clients elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, VIA};
use http::{HeaderMap, HeaderValue, StatusCode};
use microcache_policy::{FieldName, only_from_trusted_peers};
use microcache_proxy::SharedSecret;
use tokio::time::timeout;

use crate::connections::IdleSince;
use crate::interface::Interface;
use crate::problem::Problem;

/// Maximum length of a request body, and of a list of URLs to be warmed.
const LARGEST_BODY: usize = 256 * 1024;
const LARGEST_LIST: usize = 8 * 1024 * 1024;
/// Time limit for a request body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Admits authorized requests once they have arrived completely.
pub(crate) async fn check(
    State(interface): State<Arc<Interface>>,
    Extension(peer): Extension<SocketAddr>,
    Extension(activity): Extension<IdleSince>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let fields = request.headers();
    let allowed = match &interface.token {
        Some(token) if carries(fields, token) => Ok(()),
        Some(_) => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "the request does not carry the secret of `admin_token_file`",
            "send Authorization: Bearer SECRET; the command line finds it as root, or by --token-file",
        )),
        None => of_this_machine(peer.ip(), fields),
    };
    interface.count_refused(allowed)?;
    let (head, body) = request.into_parts();
    let most = match head.uri.path() {
        "/v1/warm" => LARGEST_LIST,
        _ => LARGEST_BODY,
    };
    let content = content(body, most).await?;
    // Only now, so that connections with incomplete requests can be evicted.
    let under_way = interface.connections.begin(&activity)?;
    let answer = next.run(Request::from_parts(head, content.into())).await;
    Ok(answer.map(|body| under_way.ends_with(body)))
}

/// Reads the complete request body.
async fn content(body: Body, most: usize) -> Result<Bytes, Problem> {
    let content = timeout(BODY_TIMEOUT, to_bytes(body, most)).await;
    let content = content.map_err(|_| {
        let seconds = BODY_TIMEOUT.as_secs();
        let detail = format!("the content has not arrived within {seconds} s");
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            detail,
            "send the content without pauses",
        )
    })?;
    content.map_err(|_| {
        let detail = format!("the content is incomplete, or longer than {most} bytes");
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            detail,
            "send a smaller request",
        )
    })
}

fn carries(fields: &HeaderMap, token: &SharedSecret) -> bool {
    let said = fields.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    said.is_some_and(|said| token.matches_authorization(said))
}

/// Admits requests for the dashboard page. The page contains no data and needs no secret, which is
/// entered in it; its requests for data are authorized separately. Links from other origins may lead to
/// it.
pub(crate) async fn check_page(
    State(interface): State<Arc<Interface>>,
    Extension(peer): Extension<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if interface.token.is_none() {
        interface.count_refused(by_its_address(peer.ip(), request.headers()))?;
    }
    Ok(next.run(request).await)
}

/// Checks that a request without a secret comes from a local program or from the dashboard.
fn of_this_machine(peer: IpAddr, fields: &HeaderMap) -> Result<(), Problem> {
    let host = by_its_address(peer, fields)?;
    let foreign = |remedy: &str| {
        let detail = "the request comes from a page of another origin";
        Err(Problem::new(StatusCode::FORBIDDEN, detail, remedy))
    };
    let origins = fields.get_all(ORIGIN).iter().map(HeaderValue::as_bytes);
    for origin in origins {
        if origin != format!("http://{host}").as_bytes() {
            return foreign("use the command line, or set admin_token_file and send its secret");
        }
    }
    let sites = fields.get_all("sec-fetch-site").iter();
    for site in sites {
        if !matches!(site.as_bytes(), b"same-origin" | b"none") {
            return foreign("open the dashboard directly");
        }
    }
    Ok(())
}

/// Returns the host if a request without a secret comes from this machine and `Host` is its address.
fn by_its_address(peer: IpAddr, fields: &HeaderMap) -> Result<&str, Problem> {
    let refuse =
        |detail: &str, remedy: &str| Err(Problem::new(StatusCode::FORBIDDEN, detail, remedy));
    if !peer.to_canonical().is_loopback() {
        return refuse(
            "without `admin_token_file`, only local clients are accepted",
            "set admin_token_file and send its secret as Authorization: Bearer SECRET",
        );
    }
    let is_of_proxy =
        |name: &HeaderName| name == VIA || only_from_trusted_peers(FieldName::of(name.as_ref()));
    if fields.keys().any(is_of_proxy) {
        return refuse(
            "a proxy has forwarded the request: its client may be on another machine",
            "set admin_token_file and send its secret as Authorization: Bearer SECRET",
        );
    }
    let mut hosts = fields.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let Some(host) = host.filter(|host| hosts.next().is_none() && is_local(host)) else {
        return refuse(
            "the Host field does not name this machine by its address",
            "use http://127.0.0.1 or http://localhost with the port; or set admin_token_file",
        );
    };
    Ok(host)
}

/// Returns true for loopback addresses and `localhost` (RFC 6761).
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    name.eq_ignore_ascii_case("localhost")
        || address
            .unwrap_or(name)
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| {
            (
                name.parse().expect("a name"),
                HeaderValue::from_static(value),
            )
        });
        lines.collect()
    }

    #[test]
    fn programs_of_this_machine_need_no_secret_and_web_pages_get_nothing() {
        let allowed = |peer: &str, lines: &[(&'static str, &'static str)]| {
            of_this_machine(peer.parse().expect("an address"), &fields(lines)).is_ok()
        };
        for host in [
            "127.0.0.1:8081",
            "localhost",
            "LOCALHOST:8081",
            "[::1]:8081",
            "127.8.8.8",
        ] {
            assert!(allowed("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(allowed("::1", &[("host", "[::1]:8081")]));
        assert!(allowed("::ffff:127.0.0.1", &[("host", "127.0.0.1")]));
        assert!(!allowed("192.0.2.1", &[("host", "127.0.0.1:8081")]));
        for host in [
            "example.org:8081",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "",
            "192.0.2.1",
            "[::1",
            "localhost:8081:1x",
        ] {
            assert!(!allowed("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(!allowed("127.0.0.1", &[]));
        for name in [
            "forwarded",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-real-ip",
            "x-forwarded-proto",
            "cf-connecting-ip",
        ] {
            let lines = [("host", "127.0.0.1"), (name, "192.0.2.1")];
            assert!(!allowed("127.0.0.1", &lines), "{name}");
        }
        let host = ("host", "127.0.0.1:8081");
        assert!(allowed(
            "127.0.0.1",
            &[host, ("origin", "http://127.0.0.1:8081")]
        ));
        assert!(allowed("127.0.0.1", &[host, ("sec-fetch-site", "none")]));
        for origin in [
            "http://example.org",
            "null",
            "https://127.0.0.1:8081",
            "http://127.0.0.1:8080",
            "",
        ] {
            assert!(
                !allowed("127.0.0.1", &[host, ("origin", origin)]),
                "{origin}"
            );
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(
                !allowed("127.0.0.1", &[host, ("sec-fetch-site", site)]),
                "{site}"
            );
        }
    }

    #[test]
    fn the_dashboard_may_send_requests_under_each_of_its_names() {
        let check =
            |host: &'static str, origin: &'static str, site: &'static str, allowed: bool| {
                let lines = [("host", host), ("origin", origin), ("sec-fetch-site", site)];
                let peer = IpAddr::from([127, 0, 0, 1]);
                let answer = of_this_machine(peer, &fields(&lines));
                assert_eq!(answer.is_ok(), allowed, "{lines:?}");
            };
        check(
            "127.0.0.1:8081",
            "http://127.0.0.1:8081",
            "same-origin",
            true,
        );
        check(
            "localhost:8081",
            "http://localhost:8081",
            "same-origin",
            true,
        );
        check("[::1]:8081", "http://[::1]:8081", "same-origin", true);
        // Through a tunnel with another local port.
        check(
            "localhost:9000",
            "http://localhost:9000",
            "same-origin",
            true,
        );
        // A name that resolves to this address (DNS rebinding): the browser considers it the page's own origin.
        check(
            "evil.example:8081",
            "http://evil.example:8081",
            "same-origin",
            false,
        );
        // A page of another server on this machine, such as the application.
        check(
            "127.0.0.1:8081",
            "http://127.0.0.1:3000",
            "same-site",
            false,
        );
        check(
            "localhost:8081",
            "http://127.0.0.1:8081",
            "cross-site",
            false,
        );
        check("127.0.0.1:8081", "null", "cross-site", false);
    }

    #[test]
    fn a_link_may_lead_to_the_page_and_a_name_that_was_led_here_may_not() {
        let opened = |peer: &str, host: &'static str| {
            let lines = [("host", host), ("sec-fetch-site", "cross-site")];
            by_its_address(peer.parse().expect("an address"), &fields(&lines)).is_ok()
        };
        assert!(opened("127.0.0.1", "127.0.0.1:8081"));
        assert!(!opened("127.0.0.1", "evil.example:8081"));
        assert!(!opened("192.0.2.1", "127.0.0.1:8081"));
    }
}
