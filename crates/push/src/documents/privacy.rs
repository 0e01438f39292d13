//! Access control of private documents.

use microcache_engine::OriginRequest;
use microcache_policy::Fields;
use microcache_policy::key::split_query;

use crate::access::cors;
use crate::access::read_grant::{ReadGrant, ReaderCredentials};
use crate::access::request_token::RequestToken;
use crate::documents::Documents;
use crate::documents::url_error::UrlError;
use crate::name::{Pattern, Prefix};
use crate::paths::WATCH_PATH;

/// Names of cookies that carry a token.
const COOKIES: &[&[u8]] = &[
    b"microcacheAuthorization",
    b"__Secure-microcacheAuthorization",
];

impl Documents {
    /// Returns whether a document of this name is private.
    pub(crate) fn is_private(&self, name: &str) -> bool {
        let mut private = self.settings.private.iter();
        private.any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Returns the credentials of a request. `target` may carry a token in its query only where access logs
    /// redact it.
    pub(crate) fn credentials(&self, request: &OriginRequest, target: &[u8]) -> ReaderCredentials {
        let fields = request.fields.fields();
        let counts = |token: &RequestToken| {
            let sites = &self.settings.allow_origins;
            !token.is_ambient || cors::allows_cookie_read(sites, fields, &request.authority)
        };
        let own = self.credentials_from(fields, target, counts);
        if self.settings.private.is_empty() || matches!(own, ReaderCredentials::Valid(_)) {
            return own;
        }
        // The server may have decided by a cookie.
        let sites = &self.settings.allow_origins;
        if !cors::allows_cookie_read(sites, fields, &request.authority) {
            return own;
        }
        match ReadGrant::from_fields(fields) {
            None => own,
            Some(Ok(grant)) => ReaderCredentials::Valid(grant),
            Some(Err(why)) => ReaderCredentials::Invalid(why),
        }
    }

    /// Returns whether a request may be about private documents, and has no valid token of its own.
    pub(crate) fn needs_permission(&self, target: &[u8], fields: Fields<'_>) -> bool {
        let (path, _) = split_query(target);
        // A socket may ask for other documents later.
        let asks_later = path == WATCH_PATH.as_bytes() || fields.contains("sec-websocket-version");
        let is_private = || std::str::from_utf8(path).is_ok_and(|path| self.is_private(path));
        let has_token = || {
            let credentials = self.credentials_from(fields, target, |_| true);
            matches!(credentials, ReaderCredentials::Valid(_))
        };
        !self.settings.private.is_empty() && (asks_later || is_private()) && !has_token()
    }

    fn credentials_from(
        &self,
        fields: Fields<'_>,
        target: &[u8],
        counts: impl Fn(&RequestToken) -> bool,
    ) -> ReaderCredentials {
        // Without private documents, credentials are ignored: they may belong to the application.
        if self.settings.private.is_empty() {
            return ReaderCredentials::Absent;
        }
        match RequestToken::from_request(fields, target, COOKIES).filter(counts) {
            None => ReaderCredentials::Absent,
            Some(token) => match self.keys.read().verify(&token) {
                Ok(grant) => ReaderCredentials::Valid(grant),
                Err(why) => ReaderCredentials::Invalid(why),
            },
        }
    }

    /// Returns whether a document may be served without consulting the host of the request. Cookies with an
    /// `Origin` are left to [`Self::credentials`], which knows the host.
    pub(crate) fn is_readable_by(&self, name: &str, fields: Fields<'_>) -> bool {
        if !self.is_private(name) {
            return true;
        }
        let is_same_origin =
            !fields.contains("origin") && cors::allows_cookie_read(&[], fields, b"");
        let credentials = self.credentials_from(fields, b"", |it| !it.is_ambient || is_same_origin);
        credentials.grant().may_read(name)
    }

    /// Checks that a pattern may be subscribed to. A pattern that only partly covers private documents is
    /// allowed: events of unreadable documents are omitted.
    pub(crate) fn authorize(
        &self,
        credentials: &ReaderCredentials,
        pattern: &Pattern,
    ) -> Result<(), UrlError> {
        let literal_prefix = pattern.literal_prefix();
        let has = |private: &Prefix| literal_prefix.starts_with(private.as_str());
        let reaches = |private: &Prefix| private.as_str().starts_with(literal_prefix);
        let private = &self.settings.private;
        let is_private = private.iter().any(has);
        let may_be_private = is_private || pattern.matches_several() && private.iter().any(reaches);
        if !may_be_private {
            return Ok(());
        }
        match (credentials, pattern) {
            (ReaderCredentials::Invalid(why), _) => Err(UrlError::new(401, why.to_string())),
            (ReaderCredentials::Absent, _) if is_private => {
                let why = format!("{} is private: a token is required", pattern.source());
                Err(UrlError::new(401, why))
            }
            (ReaderCredentials::Valid(grant), Pattern::Exact(name)) if !grant.may_read(name) => {
                let why = format!("{name} is private, and the token does not permit reading it");
                Err(UrlError::new(403, why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::read_grant::{PushKeys, ReadGrantError};
    use crate::origin::Push;
    use crate::settings::PushSettings;

    #[test]
    fn patterns_that_overlap_private_ones_are_distinguished_from_private_ones() {
        let settings = PushSettings {
            private: vec![Prefix::parse("/live/p/").expect("a prefix")],
            memory: 1 << 20,
            max_subscribers: 10,
            ..PushSettings::default()
        };
        let push = Push::start(settings, PushKeys::default()).expect("in memory");
        let some = || {
            let readable = Pattern::parse("/live/p/a").expect("a pattern");
            ReaderCredentials::Valid(ReadGrant::for_patterns(vec![readable]))
        };
        for (url, nothing, wrong, reads) in [
            ("/live/x", 200, 200, 200),
            ("/live/p", 200, 200, 200),
            ("/live/px", 200, 200, 200),
            ("/live/q/*", 200, 200, 200),
            ("/live/p/a", 401, 401, 200),
            ("/live/p/b", 401, 401, 403),
            ("/live/p/*", 401, 401, 200),
            ("/live/p/{id}", 401, 401, 200),
            ("/live/*", 200, 401, 200),
            ("/live/p*", 200, 401, 200),
            ("/*", 200, 401, 200),
            ("/live/{a}/a", 200, 401, 200),
        ] {
            let pattern = Pattern::parse(url).expect("a pattern");
            let may = |credentials: &ReaderCredentials| {
                let may = push.documents().authorize(credentials, &pattern);
                may.err().map_or(200, |error| error.status)
            };
            let known = [
                may(&ReaderCredentials::Absent),
                may(&ReaderCredentials::Invalid(ReadGrantError::Unknown)),
                may(&some()),
            ];
            assert_eq!(known, [nothing, wrong, reads], "{url}");
        }
    }
}
