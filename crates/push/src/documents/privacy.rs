//! Access control of private documents.

use microcache_engine::OriginRequest;
use microcache_policy::Fields;

use crate::access::presented::Presented;
use crate::access::readers::Shown;
use crate::access::sites;
use crate::documents::Documents;
use crate::documents::no_url::NoUrl;
use crate::name::{Pattern, Prefix};

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
    pub(crate) fn shown(&self, request: &OriginRequest, target: &[u8]) -> Shown {
        let fields = request.fields.fields();
        let counts = |presented: &Presented| {
            let sites = &self.settings.allow_origins;
            !presented.is_ambient || sites::counts_cookies(sites, fields, &request.authority)
        };
        self.shown_by(fields, target, counts)
    }

    fn shown_by(
        &self,
        fields: Fields<'_>,
        target: &[u8],
        counts: impl Fn(&Presented) -> bool,
    ) -> Shown {
        // Without private documents, credentials are ignored: they may belong to the application.
        if self.settings.private.is_empty() {
            return Shown::Nothing;
        }
        match Presented::of(fields, target, COOKIES).filter(counts) {
            None => Shown::Nothing,
            Some(presented) => match self.keys.read().reader(&presented) {
                Ok(reader) => Shown::Reader(reader),
                Err(why) => Shown::Wrong(why),
            },
        }
    }

    /// Returns whether a document may be served without consulting the host of the request. Cookies with an
    /// `Origin` are left to [`Self::shown`], which knows the host.
    pub(crate) fn is_open_to(&self, name: &str, fields: Fields<'_>) -> bool {
        if !self.is_private(name) {
            return true;
        }
        let is_from_here = !fields.contains("origin") && sites::counts_cookies(&[], fields, b"");
        let shown = self.shown_by(fields, b"", |it| !it.is_ambient || is_from_here);
        shown.reader().may_read(name)
    }

    /// Checks that a pattern may be subscribed to. A pattern that only partly covers private documents is
    /// allowed: events of unreadable documents are omitted.
    pub(crate) fn may_ask(&self, shown: &Shown, pattern: &Pattern) -> Result<(), NoUrl> {
        let begins_with = pattern.begins_with();
        let has = |private: &Prefix| begins_with.starts_with(private.as_str());
        let reaches = |private: &Prefix| private.as_str().starts_with(begins_with);
        let private = &self.settings.private;
        let is_private = private.iter().any(has);
        let may_be_private = is_private || pattern.is_like() && private.iter().any(reaches);
        if !may_be_private {
            return Ok(());
        }
        match (shown, pattern) {
            (Shown::Wrong(why), _) => Err(NoUrl::new(401, why.to_string())),
            (Shown::Nothing, _) if is_private => {
                let why = format!("{} is private: show a token", pattern.as_written());
                Err(NoUrl::new(401, why))
            }
            (Shown::Reader(reader), Pattern::Exact(name)) if !reader.may_read(name) => {
                let why = format!("{name} is private, and the token does not name it");
                Err(NoUrl::new(403, why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::readers::{NoReader, PushKeys, Reader};
    use crate::origin::Push;
    use crate::settings::PushSettings;

    #[test]
    fn patterns_that_reach_what_is_private_are_told_from_those_that_are() {
        let settings = PushSettings {
            private: vec![Prefix::parse("/live/p/").expect("a prefix")],
            memory: 1 << 20,
            max_subscribers: 10,
            ..PushSettings::default()
        };
        let push = Push::start(settings, PushKeys::default()).expect("in memory");
        let some = || {
            let readable = Pattern::parse("/live/p/a").expect("a pattern");
            Shown::Reader(Reader::of_these(vec![readable]))
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
            let may = |shown: &Shown| {
                let may = push.documents().may_ask(shown, &pattern);
                may.err().map_or(200, |why| why.status)
            };
            let known = [
                may(&Shown::Nothing),
                may(&Shown::Wrong(NoReader::Unknown)),
                may(&some()),
            ];
            assert_eq!(known, [nothing, wrong, reads], "{url}");
        }
    }
}
