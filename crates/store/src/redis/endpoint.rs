//! Configured servers: an address, or sentinels that know the present one.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use super::address::{ConnectError, RedisAddress, RedisStartError};
use super::sentinel::SentinelSet;
use super::settings::RedisSettings;
use crate::tier::TierError;

/// Configured server.
#[derive(Clone)]
pub(super) enum Endpoint {
    /// Its address.
    Address(Box<RedisAddress>),
    /// The master that sentinels know.
    Master(Arc<SentinelSet>),
}

/// Parses the URLs of the settings.
pub(super) fn read(settings: &RedisSettings) -> Result<Vec<Endpoint>, RedisStartError> {
    let urls = &settings.urls;
    if urls.is_empty() || urls.len() > 1 && !settings.cluster {
        return Err(RedisStartError::Addresses(urls.len()));
    }
    // Fails if a default provider is installed already, which is then used.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    urls.iter()
        .map(|url| {
            Endpoint::parse(url, settings).map_err(|why| RedisStartError::Url {
                url: without_secrets(url),
                why,
            })
        })
        .collect()
}

/// Tries other users and passwords for these servers, unless the server is out of reach, and adopts them.
pub(super) async fn change_login(
    endpoints: &[Endpoint],
    settings: &RedisSettings,
    urls: Vec<String>,
) -> Result<(), TierError> {
    let settings = RedisSettings {
        urls,
        ..settings.clone()
    };
    let failed = |why: RedisStartError| TierError::Failed(why.to_string());
    let new = read(&settings).map_err(failed)?;
    let is_same = |(old, new): (&Endpoint, &Endpoint)| {
        old.name() == new.name() && old.database() == new.database()
    };
    if new.len() != endpoints.len() || !endpoints.iter().zip(&new).all(is_same) {
        return Err(TierError::Failed("other servers".to_owned()));
    }
    for new in &new {
        let tried = new.connect(&settings).await;
        if let Err(ConnectError::Rejected(why)) = tried {
            let address = new.name();
            return Err(failed(RedisStartError::Refused { address, why }));
        }
    }
    for (old, new) in endpoints.iter().zip(&new) {
        old.log_in_as(new);
    }
    Ok(())
}

impl Endpoint {
    pub(super) fn of(address: RedisAddress) -> Self {
        Self::Address(Box::new(address))
    }

    fn parse(url: &str, settings: &RedisSettings) -> Result<Self, String> {
        match SentinelSet::parse(url, settings) {
            Some(parsed) => parsed.map(|set| Self::Master(Arc::new(set))),
            None => RedisAddress::parse(url, settings).map(Self::of),
        }
    }

    /// Host and port, the path of a socket, or sentinels and the name of their master.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Address(address) => address.name(),
            Self::Master(sentinels) => sentinels.name(),
        }
    }

    pub(super) fn database(&self) -> i64 {
        match self {
            Self::Address(address) => address.database(),
            Self::Master(sentinels) => sentinels.database(),
        }
    }

    /// Uses the users and passwords of another one for connections from now on.
    fn log_in_as(&self, other: &Self) {
        match (self, other) {
            (Self::Address(own), Self::Address(other)) => own.log_in_as(other),
            (Self::Master(own), Self::Master(other)) => own.log_in_as(other),
            _ => {}
        }
    }

    /// Checks that the host can be resolved, or that of one of the sentinels.
    pub(super) async fn resolve(&self) -> Result<(), RedisStartError> {
        match self {
            Self::Address(address) => address.resolve().await,
            Self::Master(sentinels) => sentinels.resolve().await,
        }
    }

    /// Opens all connections to the server, and returns its address, too.
    pub(super) async fn connect_all(
        &self,
        settings: &RedisSettings,
    ) -> Result<(RedisAddress, Vec<MultiplexedConnection>), ConnectError> {
        let (server, first) = self.connect(settings).await?;
        let mut all = vec![first];
        while all.len() < settings.connections {
            all.push(server.open(settings).await?);
        }
        Ok((server, all))
    }

    /// Opens a connection to the server, and returns its address, too.
    async fn connect(
        &self,
        settings: &RedisSettings,
    ) -> Result<(RedisAddress, MultiplexedConnection), ConnectError> {
        match self {
            Self::Address(address) => {
                Ok((RedisAddress::clone(address), address.open(settings).await?))
            }
            Self::Master(sentinels) => sentinels.connect(settings).await,
        }
    }
}

/// Removes credentials from a URL, for messages.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.split('?').next().unwrap_or_default();
    let mark = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{mark}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(urls: &[&str], cluster: bool, expected: &str) {
        let settings = RedisSettings {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            cluster,
            ..RedisSettings::default()
        };
        let message = match read(&settings) {
            Ok(addresses) => {
                let names: Vec<_> = addresses.iter().map(Endpoint::name).collect();
                names.join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{message}");
        assert!(
            !message.contains("secret") && !message.contains('\n'),
            "{message}"
        );
    }

    #[test]
    fn addresses() {
        check(&["redis://localhost"], false, "localhost:6379");
        check(&["redis://:secret@[::1]:7000/3"], false, "::1:7000");
        check(
            &["rediss://user:secret@example.com:1"],
            false,
            "example.com:1",
        );
        check(&["valkey://example.com"], false, "example.com:6379");
        check(
            &["unix:///run/redis.sock?pass=secret"],
            false,
            "/run/redis.sock",
        );
        check(&["redis://a:1", "redis://b:2"], true, "a:1 b:2");
        check(
            &["redis-sentinel://a,b:7,[::1]/mymaster"],
            false,
            "a:26379,b:7,::1:26379/mymaster",
        );
        check(
            &["valkeys-sentinel://u:secret@a:1/m/3?sentinel_user=s&sentinel_password=secret%40"],
            false,
            "a:1/m",
        );
    }

    #[test]
    fn mistakes_are_one_line_without_the_password() {
        check(
            &[],
            false,
            "exactly one URL is required without a cluster, found 0",
        );
        check(
            &["redis://a", "redis://b"],
            false,
            "exactly one URL is required without a cluster, found 2",
        );
        check(
            &["http://u:secret@host"],
            false,
            "http://host: expected redis://",
        );
        check(
            &["u:secret@host:6379"],
            false,
            "host:6379: expected redis://",
        );
        check(&["redis://u:secret@host/x"], false, "Invalid database");
        check(&["redis://u:secret@host:99999"], false, "expected redis://");
        check(&["redis://user@host"], false, "the user has no password");
        check(
            &["redis://host/1"],
            true,
            "does not support database numbers",
        );
        check(&["rediss://host#insecure"], false, "not supported");
        for bad in ["redis-sentinel://a:1", "redis-sentinel://u:secret@a:1/"] {
            check(&[bad], false, "/master/database");
        }
        check(&["redis-sentinel://a/m/x"], false, "Invalid database");
        check(&["redis-sentinel://a,/m"], false, "expected redis://");
        check(&["unix-sentinel://a/m"], false, "/master/database");
        check(
            &["redis-sentinel://a/m?sentinel_pasword=secret"],
            false,
            "no parameters but sentinel_user and sentinel_password",
        );
        check(
            &["redis-sentinel://a/m"],
            true,
            "a cluster has no sentinels",
        );
        check(&["unix://?pass=secret"], false, "");
    }

    #[test]
    fn certificates_that_are_none_are_a_mistake() {
        let mut settings = RedisSettings {
            urls: vec!["rediss://host".to_owned()],
            authorities: Some(
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
            ),
            ..RedisSettings::default()
        };
        assert!(read(&settings).is_err());
        settings.urls = vec!["redis://host".to_owned()];
        let error = read(&settings).err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("redis://host: certificates require rediss://")
        );
    }
}
