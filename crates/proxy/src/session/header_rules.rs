//! The operator's changes to the fields of responses, and error pages, made when they are written: a stored response
//! may be that of several configurations, and what the application said decides about caching.

use std::sync::Arc;

use microcache_engine::{Outcome, Request, RequestHead, Response};
use microcache_policy::browser_cache::{
    BrowserCache, ResponseForBrowser, made_private, says_public,
};
use microcache_policy::field_edits::FieldEdits;
use microcache_policy::field_template::TemplateValues;
use microcache_policy::key::split_query;
use microcache_policy::known_name::names;
use microcache_policy::{Detail, FieldBlock, FieldsBuf, SURROGATE_CONTROL};

use super::error_page::put_error_page;
use super::{Reply, Session, request_id};
use crate::config::{Config, ErrorPages, GoesTo, Route};
use crate::tls::ClientCertificate;

/// The changes of one route.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a route has or not"
)]
pub(crate) struct HeaderRules {
    edits: Vec<FieldEdits>,
    error_pages: ErrorPages,
    /// Maintenance mode has a page of its own.
    has_maintenance_page: bool,
    browser: BrowserCache,
    /// Only authenticated clients, or those of one role, receive its responses: caches behind this one must not share them.
    is_private: bool,
    /// Its `Surrogate-Control` is for this cache, and for surrogates behind it.
    is_surrogate: bool,
    /// Its responses are files, which never are personal.
    has_files: bool,
}

impl HeaderRules {
    /// Returns the changes of all routes, by index; `None` if there are none.
    pub(crate) fn of(config: &Config) -> Option<Box<[Arc<Self>]>> {
        let is_plain = |route: &Route| {
            route.response_headers.is_empty()
                && route.browser.is_off()
                && !is_private(route)
                && route.error_pages.is_empty()
                && !is_surrogate(route)
        };
        if config.routes.iter().all(is_plain) {
            return None;
        }
        let rules = config.routes.iter().map(|route| {
            Arc::new(Self {
                edits: route.response_headers.clone(),
                error_pages: route.error_pages.clone(),
                has_maintenance_page: config.maintenance_page.is_some(),
                browser: route.browser,
                is_private: is_private(route),
                is_surrogate: is_surrogate(route),
                has_files: matches!(route.goes_to, GoesTo::Files(_)),
            })
        });
        Some(rules.collect())
    }

    fn change(&self, request: &HeadersOf<'_>, response: &mut Response) {
        if response.status < 200 {
            return;
        }
        let is_complete =
            self.has_maintenance_page && response.cache_status.detail == Some(Detail::Maintenance);
        if response.status >= 400 && !is_complete {
            put_error_page(&self.error_pages, response, self.has_files);
        }
        if !self.browser.is_off() {
            let may_be_shared =
                is_shared(response) || self.has_files || says_public(response.fields());
            let for_browser = ResponseForBrowser {
                status: response.status,
                fields: response.fields(),
                age: response.age.unwrap_or_default(),
                path: request.path,
                is_shared: may_be_shared && !request.has_credentials,
            };
            if let Some(fields) = self.browser.applied(&for_browser) {
                response.fields = Some(FieldBlock::from(fields));
            }
        }
        if self.is_surrogate && !request.is_of_surrogate {
            remove_surrogate_control(response);
        }
        for edits in self.edits.iter().filter(|it| it.take(response.status)) {
            let fields = edits.applied(response.fields(), &request.values);
            response.fields = Some(FieldBlock::from(fields));
            response.cache_status.is_hidden |= edits.removed.matches(b"cache-status");
        }
        if self.is_private {
            response.fields = Some(FieldBlock::from(made_private(response.fields())));
        }
    }
}

/// Returns true for a route whose responses are not for all clients of a cache behind this one.
fn is_private(route: &Route) -> bool {
    route.authenticates_all() || route.user_context.is_some()
}

/// Returns true for a route that obeys `Surrogate-Control`.
fn is_surrogate(route: &Route) -> bool {
    let mut targeted = route.rules.targeted.iter();
    targeted.any(|name| name.eq_ignore_ascii_case(SURROGATE_CONTROL))
}

fn remove_surrogate_control(response: &mut Response) {
    if response.fields().contains(SURROGATE_CONTROL) {
        let mut fields = FieldsBuf::new();
        fields.extend_if(response.fields(), |name, _| {
            !name.eq_ignore_ascii_case(SURROGATE_CONTROL.as_bytes())
        });
        response.fields = Some(FieldBlock::from(fields));
    }
}

/// Returns true for a response that was stored, or came from the store.
pub(super) fn is_shared(response: &Response) -> bool {
    match response.outcome {
        Outcome::Hit | Outcome::Stale | Outcome::Revalidated | Outcome::Collapsed => true,
        _ => response.cache_status.stored,
    }
}

/// A request, as far as the changes depend on it.
struct HeadersOf<'a> {
    values: TemplateValues<'a>,
    path: &'a [u8],
    has_credentials: bool,
    /// It is of a surrogate behind this cache, which removes `Surrogate-Control` itself.
    is_of_surrogate: bool,
}

/// The changes of a response that is waited for.
pub(super) struct DeferredHeaders {
    rules: Arc<HeaderRules>,
    head: RequestHead,
    client: Arc<str>,
    certificate: Option<Arc<ClientCertificate>>,
}

impl DeferredHeaders {
    pub(super) fn change(&self, response: &mut Response) {
        let request = self.head.as_request();
        let id = request_id(&request).unwrap_or_default();
        let headers = headers_of(&request, &self.client, &id, self.certificate.as_ref());
        self.rules.change(&headers, response);
    }
}

fn headers_of<'a>(
    request: &Request<'a>,
    client: &'a str,
    id: &'a [u8],
    certificate: Option<&'a Arc<ClientCertificate>>,
) -> HeadersOf<'a> {
    HeadersOf {
        values: TemplateValues {
            client_address: client.as_bytes(),
            host: request.host,
            scheme: request.scheme.as_str(),
            request_id: id,
            certificate_subject: certificate.map_or("", |it| it.subject()),
            certificate_fingerprint: certificate.map_or("", |it| it.fingerprint()),
        },
        path: split_query(request.target).0,
        has_credentials: request.fields.value(names::AUTHORIZATION).is_some(),
        is_of_surrogate: request.is_trusted && request.fields.contains("Surrogate-Capability"),
    }
}

impl Session {
    /// Changes an immediate response as its route says.
    #[cold]
    #[inline(never)]
    pub(super) fn change_headers(
        &self,
        route: usize,
        request: &Request<'_>,
        reply: &mut Option<Reply>,
    ) {
        if let Some(rules) = &self.shared.header_rules
            && let Some(Reply::Now(response)) = reply
        {
            let client = self
                .peer
                .client_text(request.fields, &self.shared.trusted_proxies);
            let id = request_id(request).unwrap_or_default();
            let headers = headers_of(request, &client, &id, self.peer.certificate());
            rules[route].change(&headers, response);
        }
    }

    /// Returns the changes of the response to a request that has to wait.
    pub(super) fn headers_of(
        &self,
        route: usize,
        head: &RequestHead,
    ) -> Option<Box<DeferredHeaders>> {
        let rules = self.shared.header_rules.as_ref()?;
        let fields = head.fields.fields();
        Some(Box::new(DeferredHeaders {
            rules: Arc::clone(&rules[route]),
            client: self.peer.client_text(fields, &self.shared.trusted_proxies),
            certificate: self.peer.certificate().cloned(),
            head: head.clone(),
        }))
    }
}
