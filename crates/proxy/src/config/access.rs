//! The clients that may use a route.

use std::net::IpAddr;

use super::cidr::Cidr;

/// The clients that may use a route, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    pub(super) deny: Vec<Cidr>,
    pub(super) allow: Vec<Cidr>,
}

impl AddressRules {
    /// Returns whether every client may use the route.
    pub(crate) const fn is_open(&self) -> bool {
        self.deny.is_empty() && self.allow.is_empty()
    }

    /// Returns whether a client may use the route. An unknown address is in no block but that of all.
    pub(crate) fn admits(&self, client: Option<IpAddr>) -> bool {
        let is_in = |blocks: &[Cidr]| {
            blocks.iter().any(|block| {
                block.is_everything() || client.is_some_and(|client| block.contains(client))
            })
        };
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

/// Parses a block of addresses, or `all`.
pub(super) fn block(text: &str) -> Result<Cidr, String> {
    match text {
        "all" => Ok(Cidr::EVERYTHING),
        block => block.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(deny: &[&str], allow: &[&str], client: &str, expected: bool) {
        let blocks = |texts: &[&str]| {
            let blocks = texts.iter().map(|text| block(text).expect(text));
            blocks.collect()
        };
        let rules = AddressRules {
            deny: blocks(deny),
            allow: blocks(allow),
        };
        let admitted = rules.admits(client.parse().ok());
        assert_eq!(admitted, expected, "{deny:?} {allow:?} {client}");
        assert_eq!(rules.is_open(), deny.is_empty() && allow.is_empty());
    }

    #[test]
    fn clients_are_denied_first_and_then_allowed() {
        let office = &["192.0.2.0/24", "2001:db8::/32"][..];
        for client in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"] {
            check(&[], office, client, true);
            check(office, &[], client, false);
            check(office, office, client, false);
            check(&["192.0.2.7", "2001:db8::7"], office, client, false);
            check(&["all"], office, client, false);
            check(office, &["all"], client, false);
        }
        for client in ["192.0.3.7", "2001:db9::7", "::192.0.2.7"] {
            check(&[], office, client, false);
            check(office, &[], client, true);
            check(office, &["all"], client, true);
        }
        check(&["0.0.0.0/0"], &[], "2001:db8::7", true);
        check(&["0.0.0.0/0"], &[], "192.0.2.7", false);
    }

    #[test]
    fn an_unknown_address_matches_no_block() {
        check(&[], &[], "unknown", true);
        check(&[], &["0.0.0.0/1", "2000::/3"], "unknown", false);
        check(&["0.0.0.0/1"], &[], "unknown", true);
        check(&["all"], &[], "unknown", false);
        check(&[], &["all"], "unknown", true);
    }

    #[test]
    fn a_block_is_written_out() {
        for text in ["", "any", "ALL", "10.0.0.1/8", "localhost"] {
            assert!(block(text).is_err(), "{text}");
        }
    }
}
