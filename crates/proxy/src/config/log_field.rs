//! The fields of a line of the access log.

/// A field of a line of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogField {
    /// The time when the request head was complete.
    Time,
    /// The address of the peer.
    Client,
    /// The method.
    Method,
    /// The scheme.
    Scheme,
    /// The host.
    Host,
    /// The path and query.
    Target,
    /// The HTTP version.
    Protocol,
    /// The status code.
    Status,
    /// Bytes of content sent.
    Bytes,
    /// The outcome.
    Outcome,
    /// The time to first byte in milliseconds.
    FirstByte,
    /// The duration in milliseconds.
    Total,
    /// The name of the route.
    Route,
    /// The value of `Cache-Status`.
    CacheStatus,
    /// Its `detail`.
    Detail,
    /// The content coding that was made here.
    Coding,
    /// `Referer`.
    Referer,
    /// `User-Agent`.
    UserAgent,
    /// `X-Forwarded-For` of a trusted proxy.
    ForwardedFor,
    /// The sampling rate.
    Sample,
    /// The origin server that was asked.
    Upstream,
    /// Its time to first byte in milliseconds.
    UpstreamTime,
    /// The identifier of the request: `X-Request-ID` of a trusted proxy, or one assigned here.
    RequestId,
    /// A field of the request.
    Request(String),
    /// A field of the response.
    Response(String),
}

/// The fields with a name of their own; the first ones are those of a line for which none were chosen.
const NAMED: [(&str, LogField); 23] = [
    ("time", LogField::Time),
    ("client", LogField::Client),
    ("method", LogField::Method),
    ("scheme", LogField::Scheme),
    ("host", LogField::Host),
    ("target", LogField::Target),
    ("protocol", LogField::Protocol),
    ("status", LogField::Status),
    ("bytes", LogField::Bytes),
    ("outcome", LogField::Outcome),
    ("first_byte_ms", LogField::FirstByte),
    ("total_ms", LogField::Total),
    ("route", LogField::Route),
    ("cache_status", LogField::CacheStatus),
    ("detail", LogField::Detail),
    ("coding", LogField::Coding),
    ("referer", LogField::Referer),
    ("user_agent", LogField::UserAgent),
    ("forwarded_for", LogField::ForwardedFor),
    ("sample", LogField::Sample),
    ("upstream", LogField::Upstream),
    ("upstream_time_ms", LogField::UpstreamTime),
    ("request_id", LogField::RequestId),
];

/// Number of fields of a line for which none were chosen.
const USUAL: usize = 20;

/// Fields that carry credentials.
const SECRET: [&str; 4] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
];

impl LogField {
    /// Returns the fields of a line for which none were chosen.
    pub fn usual() -> Vec<Self> {
        let usual = NAMED.iter().take(USUAL);
        usual.map(|(_, field)| field.clone()).collect()
    }

    /// Returns the name in the log.
    pub fn name(&self) -> String {
        match self {
            Self::Request(name) => format!("request:{name}"),
            Self::Response(name) => format!("response:{name}"),
            _ => {
                let mut named = NAMED.iter();
                let found = named.find(|(_, field)| field == self);
                found.map_or("", |(name, _)| name).to_owned()
            }
        }
    }

    /// Returns whether it is known only while the response is made, and has to be noted then.
    pub(crate) const fn needs_note(&self) -> bool {
        matches!(
            self,
            Self::Upstream | Self::UpstreamTime | Self::Response(_)
        )
    }

    /// Parses a name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, field)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(field.clone());
        }
        let (of, name) = text.split_once(':').ok_or_else(|| {
            let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            format!("fields are {names}, `request:NAME` and `response:NAME`")
        })?;
        if !is_field_name(name) {
            return Err("write the name of a header field, such as request:X-Device".to_owned());
        }
        if SECRET
            .iter()
            .any(|secret| name.eq_ignore_ascii_case(secret))
        {
            return Err("it carries credentials, which are never logged: remove it".to_owned());
        }
        match of {
            "request" => Ok(Self::Request(name.to_owned())),
            "response" => Ok(Self::Response(name.to_owned())),
            _ => Err(format!("write request:{name} or response:{name}")),
        }
    }
}

fn is_field_name(name: &str) -> bool {
    http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_the_name_that_it_is_chosen_by() {
        for (name, field) in &NAMED {
            assert_eq!(LogField::parse(name).as_ref(), Ok(field));
            assert_eq!(field.name(), *name);
        }
        for name in ["request:X-Device", "response:Server"] {
            assert_eq!(LogField::parse(name).unwrap().name(), name);
        }
        assert_eq!(LogField::usual().last(), Some(&LogField::Sample));
    }

    #[test]
    fn credentials_and_unknown_fields_are_refused() {
        for (name, why) in [
            ("request:cookie", "credentials"),
            ("request:Authorization", "credentials"),
            ("response:Set-Cookie", "credentials"),
            ("request:Proxy-Authorization", "credentials"),
            ("request:a b", "header field"),
            ("request:", "header field"),
            ("header:X", "request:X or response:X"),
            ("path", "fields are time, client"),
        ] {
            let error = LogField::parse(name).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}
