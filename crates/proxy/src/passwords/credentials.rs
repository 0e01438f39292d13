//! The credentials of a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use microcache_policy::Fields;
use microcache_policy::known_name::names;

/// The maximum length of `Authorization`, in bytes. bcrypt looks at 72 bytes of a password.
const MAX_LENGTH: usize = 1024;

/// A name and a password.
pub(crate) struct Credentials {
    decoded: Vec<u8>,
    colon: usize,
}

impl Credentials {
    /// Returns the credentials of a request, if it has exactly one `Authorization` field, and that is valid (RFC 7617
    /// §2).
    pub(crate) fn of(fields: Fields<'_>) -> Option<Self> {
        let mut values = fields.values(names::AUTHORIZATION);
        let value = values.next().filter(|value| value.len() <= MAX_LENGTH)?;
        if values.next().is_some() {
            return None;
        }
        let (scheme, rest) = value.split_at_checked(5)?;
        if !scheme.eq_ignore_ascii_case(b"basic") || rest.first() != Some(&b' ') {
            return None;
        }
        let decoded = STANDARD.decode(rest.trim_ascii()).ok()?;
        let colon = decoded.iter().position(|&byte| byte == b':')?;
        // bcrypt ends a password at its first NUL, so others would be the same.
        (!decoded.contains(&0)).then_some(Self { decoded, colon })
    }

    pub(crate) fn user(&self) -> &[u8] {
        &self.decoded[..self.colon]
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.decoded[self.colon + 1..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &str, expected: Option<(&str, &str)>) {
        let read = Credentials::of(Fields::new(fields.as_bytes()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let read = read.map(|it| (text(it.user()), text(it.password())));
        let read = read.as_ref().map(|(user, password)| (&**user, &**password));
        assert_eq!(read, expected, "{fields:?}");
    }

    #[test]
    fn one_valid_field_is_read() {
        let basic = |text: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(text));
        check(&basic("ann:secret"), Some(("ann", "secret")));
        check(&basic("ann:a:b c"), Some(("ann", "a:b c")));
        check(&basic(":"), Some(("", "")));
        check("authorization: bAsIc  YTpi\r\n", Some(("a", "b")));
        check("", None);
        check(&basic("ann"), None);
        check(&basic("ann:se\0cret"), None);
        check(&basic(&format!("ann:{}", "x".repeat(2000))), None);
        check(&(basic("ann:secret") + &basic("ann:secret")), None);
        check("Authorization: Basic\r\n", None);
        check("Authorization: Basic \r\n", None);
        check("Authorization: Basic YTp\r\n", None);
        check("Authorization: BasicYTpi\r\n", None);
        check("Authorization: Bearer YTpi\r\n", None);
        check("Authorization:\r\n", None);
    }
}
