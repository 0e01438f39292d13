//! Users and the hashes of their passwords, as `htpasswd -B` writes them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The costs that are accepted: above the maximum one request takes seconds of a processor.
const COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// The cost of `htpasswd -B` without `-C`, for a file without users.
const USUAL_COST: u32 = 5;
/// Salt and hash of no user's password.
const DECOY: &str = "abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui";
const REMEDY: &str = "htpasswd -B FILE USER";

/// Users and the hashes of their passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Users {
    hashes: HashMap<Box<[u8]>, Arc<str>>,
    /// The hash for names that are no users, which costs as much.
    decoy: Arc<str>,
}

/// A mistake in a file of users.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsersError {
    /// The line, from 1.
    pub(crate) line: usize,
    pub(crate) what: &'static str,
    pub(crate) remedy: &'static str,
}

impl Users {
    /// Parses lines of a name, a colon and a hash. Empty lines and those with `#` at the beginning are skipped.
    pub(crate) fn parse(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        let mut highest = None;
        for (index, line) in text.lines().enumerate() {
            let refused = |what, remedy| UsersError {
                line: index + 1,
                what,
                remedy,
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| refused("no colon between the name and the hash", REMEDY))?;
            let Some(cost) = cost_of(hash) else {
                return Err(refused("the hash is not one of bcrypt", REMEDY));
            };
            if !COSTS.contains(&cost) {
                let what = "the cost of the hash is not from 4 to 14";
                return Err(refused(what, "htpasswd -B -C 10 FILE USER"));
            }
            highest = highest.max(Some(cost));
            let known = users.hashes.insert(name.as_bytes().into(), hash.into());
            if known.is_some() {
                return Err(refused("the name is in an earlier line too", "remove one"));
            }
        }
        users.decoy = format!("$2b${:02}${DECOY}", highest.unwrap_or(USUAL_COST)).into();
        Ok(users)
    }

    /// Returns the hash of a user's password, and whether there is such a user.
    pub(super) fn hash_of(&self, name: &[u8]) -> (Arc<str>, bool) {
        match self.hashes.get(name) {
            Some(hash) => (Arc::clone(hash), true),
            None => (Arc::clone(&self.decoy), false),
        }
    }
}

/// Without the hashes.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.hashes.len())
    }
}

/// Returns the cost of a hash of bcrypt.
fn cost_of(hash: &str) -> Option<u32> {
    let rest = ["$2y$", "$2b$", "$2a$"]
        .iter()
        .find_map(|version| hash.strip_prefix(version))?;
    let (cost, rest) = rest.split_once('$')?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"./".contains(&byte);
    let is_hash = rest.len() == DECOY.len() && rest.bytes().all(is_letter);
    let is_cost = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
    (is_hash && is_cost).then(|| cost.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_htpasswd_are_read() {
        let text = format!("# staging\n\nann:$2y$05${DECOY}\r\nbob:$2b$12${DECOY}\n");
        let users = Users::parse(&text).expect("a file");
        assert_eq!(
            users.hash_of(b"ann"),
            (format!("$2y$05${DECOY}").into(), true)
        );
        // An unknown name costs as much as the most expensive known one.
        assert_eq!(
            users.hash_of(b"eve"),
            (format!("$2b$12${DECOY}").into(), false)
        );
        assert!(!users.hash_of(b"# staging").1);
        assert_eq!(format!("{users:?}"), "2 users");
        let (decoy, is_known) = Users::parse("").expect("an empty file").hash_of(b"ann");
        assert!(bcrypt::verify("abc", &decoy).is_ok() && !is_known);
    }

    #[test]
    fn other_hashes_are_refused_with_a_remedy() {
        let check = |text: &str, line, what: &str| {
            let error = Users::parse(text).expect_err(text);
            assert_eq!((error.line, error.what), (line, what), "{text}");
            assert!(!error.remedy.is_empty());
        };
        let other = "the hash is not one of bcrypt";
        check("\nann", 2, "no colon between the name and the hash");
        for hash in [
            "secret",
            "$apr1$abcdefgh$0123456789012345678901",
            "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=",
            "$2y$05$short",
            "$2x$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui",
            "$2y$5$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui",
            "$2y$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBu:",
            "",
        ] {
            check(&format!("ann:{hash}"), 1, other);
        }
        let cost = "the cost of the hash is not from 4 to 14";
        check(&format!("ann:$2y$15${DECOY}"), 1, cost);
        check(&format!("ann:$2y$03${DECOY}"), 1, cost);
        let twice = format!("ann:$2y$05${DECOY}\nann:$2y$06${DECOY}");
        check(&twice, 2, "the name is in an earlier line too");
    }
}
