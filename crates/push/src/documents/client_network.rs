//! The network that a subscriber's limits are counted against.

use microcache_policy::network::address;
use microcache_policy::{Fields, Network};

/// The client's network; clients of unknown address share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(Option<Network>);

impl ClientNetwork {
    /// Returns the client of a request: the last member of `X-Forwarded-For` is the connected peer, and the
    /// one before it comes from a trusted proxy.
    pub(crate) fn from_request(request: Fields<'_>) -> Self {
        let mut nearest_last = request.members("x-forwarded-for");
        let (mut before, mut last) = (None, nearest_last.next());
        for member in nearest_last {
            before = last.replace(member);
        }
        Self(before.or(last).and_then(address).map(Network::of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_named_by_the_nearest_trusted_proxy() {
        let client = |value: &str| {
            let block = format!("X-Forwarded-For: {value}\r\n");
            ClientNetwork::from_request(Fields::new(block.as_bytes()))
        };
        assert_eq!(client("10.0.0.1"), client("::ffff:10.0.0.1"));
        assert_ne!(client("10.0.0.1"), client("10.0.0.2"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::2"));
        // Members further to the left come from the client and are not trusted.
        assert_eq!(
            client("1.2.3.4, 10.0.0.1, 10.9.9.9"),
            client("10.0.0.1, 10.9.9.8")
        );
        assert_eq!(client("unknown"), ClientNetwork::default());
        assert_eq!(
            ClientNetwork::from_request(Fields::default()),
            ClientNetwork::default()
        );
    }
}
