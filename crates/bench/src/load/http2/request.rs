//! HTTP/2 request heads, prepared before the run starts.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use crate::load::error::LoadError;
use crate::load::settings::Settings;
use crate::load::target::{LoadTarget, TargetUrl};

/// Prepared request of one target.
#[derive(Debug)]
pub(super) struct Http2Request {
    method: Method,
    /// Scheme and authority.
    origin: String,
    url: TargetUrl,
    fields: HeaderMap,
    pub(super) body: Bytes,
}

impl Http2Request {
    pub(super) fn new(target: &LoadTarget, settings: &Settings) -> Result<Self, LoadError> {
        let unsendable = LoadError::Settings("a field or the method cannot be sent with HTTP/2");
        Self::prepare(target, settings).ok_or(unsendable)
    }

    fn prepare(target: &LoadTarget, settings: &Settings) -> Option<Self> {
        let mut fields = HeaderMap::new();
        for (name, value) in target.fields(&settings.headers) {
            let name = HeaderName::try_from(name.as_str()).ok()?;
            let value = HeaderValue::try_from(value.as_str()).ok()?;
            fields.append(name, value);
        }
        // `:authority` replaces Host (RFC 9113 §8.3.1); connection-specific fields are forbidden (§8.2.2).
        let host = fields.remove(HOST);
        let host = host.as_ref().and_then(|host| host.to_str().ok());
        for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
            fields.remove(name);
        }
        if target.body.is_empty() {
            fields.remove(CONTENT_LENGTH);
        }
        let server = &target.url.server;
        let scheme = if server.secure { "https" } else { "http" };
        let authority = host.map_or_else(|| server.authority(), str::to_owned);
        Some(Self {
            method: Method::from_bytes(target.method.as_bytes()).ok()?,
            origin: format!("{scheme}://{authority}"),
            url: target.url.clone(),
            fields,
            body: Bytes::copy_from_slice(&target.body),
        })
    }

    /// Returns the request head for one URL of the target; `None` if the URL is not a valid URI.
    pub(super) fn head(&self, index: u64) -> Option<http::Request<()>> {
        let mut url = self.origin.clone().into_bytes();
        self.url.write_path(index, &mut url);
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from_maybe_shared(url).ok()?;
        *request.version_mut() = http::Version::HTTP_2;
        request.headers_mut().clone_from(&self.fields);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_takes_the_place_of_host() {
        let url = TargetUrl::parse("https://a:81/[1-3]").expect("a url");
        let mut settings = Settings::new(vec![LoadTarget::get(url)]);
        let of = |settings: &Settings| {
            let request = Http2Request::new(&settings.targets[0], settings).expect("it is fit");
            request.head(1).expect("it is fit")
        };
        let head = of(&settings);
        assert_eq!(head.uri(), "https://a:81/2");
        assert!(!head.headers().contains_key("host"));
        assert!(head.headers().contains_key("user-agent"));
        settings.headers = vec![
            ("Host".to_owned(), "b".to_owned()),
            ("Connection".to_owned(), "x".to_owned()),
        ];
        let head = of(&settings);
        assert_eq!(head.uri(), "https://b/2");
        assert!(!head.headers().contains_key("connection"));
    }
}
