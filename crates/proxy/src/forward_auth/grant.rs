//! Admission of a request, with the fields that the authentication server sets.

use microcache_policy::FieldsBuf;

/// Admission of a request.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    /// Fields for the application.
    fields: Vec<(String, Vec<u8>)>,
    /// `Set-Cookie` for the client.
    cookies: Vec<Vec<u8>>,
}

impl Grant {
    /// Returns the grant of a response, of which these fields are copied.
    pub(super) fn of(response: &FieldsBuf, copied: &[String]) -> Self {
        let response = response.fields();
        let value = |name: &String| {
            let lines: Vec<_> = response.all(name).collect();
            (!lines.is_empty()).then(|| (name.clone(), lines.join(&b", "[..])))
        };
        Self {
            fields: copied.iter().filter_map(value).collect(),
            cookies: response.all("set-cookie").map(<[u8]>::to_vec).collect(),
        }
    }

    /// Returns the grant of one field.
    pub(crate) fn of_field(name: &str, value: &[u8]) -> Self {
        Self {
            fields: vec![(name.to_owned(), value.to_vec())],
            cookies: Vec::new(),
        }
    }

    /// Returns whether the client is to receive a cookie with the response.
    pub(crate) const fn sets_cookies(&self) -> bool {
        !self.cookies.is_empty()
    }

    /// Adds the fields to a request to the application, from which the client's own are removed.
    pub(crate) fn add_fields(&self, outgoing: &mut FieldsBuf) {
        for (name, value) in &self.fields {
            outgoing.push(name, value);
        }
    }

    /// Adds the cookies to a response.
    pub(crate) fn add_cookies(&self, response: &mut FieldsBuf) {
        for cookie in &self.cookies {
            response.push("Set-Cookie", cookie);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_copied() {
        let copied = ["Remote-User", "Remote-Groups", "Remote-Name"].map(str::to_owned);
        let mut response = FieldsBuf::new();
        for (name, value) in [
            ("remote-user", "ann"),
            ("Remote-Groups", "a"),
            ("Remote-Groups", "b"),
            ("X-Other", "c"),
            ("Set-Cookie", "d=e"),
        ] {
            response.push(name, value);
        }
        let grant = Grant::of(&response, &copied);
        let (mut outgoing, mut answer) = (FieldsBuf::new(), FieldsBuf::new());
        grant.add_fields(&mut outgoing);
        grant.add_cookies(&mut answer);
        let fields = &b"Remote-User: ann\r\nRemote-Groups: a, b\r\n"[..];
        assert_eq!(outgoing.fields().as_block(), fields);
        assert_eq!(answer.fields().as_block(), b"Set-Cookie: d=e\r\n");
        assert!(grant.sets_cookies() && !Grant::default().sets_cookies());
    }
}
