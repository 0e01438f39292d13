//! Sentinels, which know the present master of a group of servers.
//!
//! They are asked at each attempt to connect, and now and then: an old master that they cannot reach may go on as one.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::address::{ConnectError, RedisAddress, RedisStartError};
use super::settings::RedisSettings;

/// Port of sentinels if the URL has none.
const PORT: u16 = 26379;

/// Sentinels of one master.
pub(super) struct SentinelSet {
    /// Name of the master in the configuration of the sentinels.
    master: String,
    /// User, password, database and certificates of the master.
    server: RedisAddress,
    sentinels: Vec<RedisAddress>,
    /// The sentinel to ask first: the last one that answered.
    first: AtomicUsize,
}

/// A sentinel's answer.
struct NamedMaster<'a> {
    sentinel: &'a RedisAddress,
    host: String,
    port: u16,
}

fn parse_parts(scheme: &str, rest: &str, settings: &RedisSettings) -> Result<SentinelSet, String> {
    const FORM: &str =
        "expected redis-sentinel://user:password@host:port,host:port/master/database";
    if !matches!(scheme, "redis" | "rediss" | "valkey" | "valkeys") {
        return Err(FORM.to_owned());
    }
    if settings.cluster {
        return Err("a cluster has no sentinels: name some of its servers".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, rest) = rest.rsplit_once('@').map_or_else(
        || (String::new(), rest),
        |(user, rest)| (format!("{user}@"), rest),
    );
    let (hosts, path) = rest.split_once('/').ok_or(FORM)?;
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    if master.is_empty() {
        return Err(FORM.to_owned());
    }
    let login = sentinel_login(query)?;
    let of = |user: &str, host: &str, database: &str| {
        RedisAddress::parse(&format!("{scheme}://{user}{host}/{database}"), settings)
    };
    let hosts: Vec<String> = hosts.split(',').map(with_port).collect();
    let sentinels: Result<Vec<_>, _> = hosts.iter().map(|host| of(&login, host, "")).collect();
    Ok(SentinelSet {
        master: master.to_owned(),
        server: of(&user, &hosts[0], database)?,
        sentinels: sentinels?,
        first: AtomicUsize::new(0),
    })
}

/// Reads the user and password for the sentinels themselves.
fn sentinel_login(query: &str) -> Result<String, String> {
    let (mut user, mut password) = ("", None);
    for parameter in query.split('&').filter(|it| !it.is_empty()) {
        match parameter.split_once('=') {
            Some(("sentinel_user", value)) => user = value,
            Some(("sentinel_password", value)) => password = Some(value),
            _ => {
                return Err(
                    "expected no parameters but sentinel_user and sentinel_password".to_owned(),
                );
            }
        }
    }
    match password {
        Some(password) => Ok(format!("{user}:{password}@")),
        None if user.is_empty() => Ok(String::new()),
        None => Err("sentinel_user has no sentinel_password".to_owned()),
    }
}

fn with_port(host: &str) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port {
        host.to_owned()
    } else {
        format!("{host}:{PORT}")
    }
}

impl SentinelSet {
    /// Reads `redis-sentinel://user:password@host:port,host:port/master/database`; `None` for another form.
    pub(super) fn parse(url: &str, settings: &RedisSettings) -> Option<Result<Self, String>> {
        let (scheme, rest) = url.split_once("-sentinel://")?;
        Some(parse_parts(scheme, rest, settings))
    }

    /// Addresses of the sentinels and name of the master, as in the URL.
    pub(super) fn name(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(RedisAddress::name).collect();
        format!("{}/{}", sentinels.join(","), self.master)
    }

    pub(super) fn database(&self) -> i64 {
        self.server.database()
    }

    /// Uses the users and passwords of another set for connections from now on.
    pub(super) fn log_in_as(&self, other: &Self) {
        self.server.log_in_as(&other.server);
        for (own, other) in self.sentinels.iter().zip(&other.sentinels) {
            own.log_in_as(other);
        }
    }

    /// Checks that the host of one of the sentinels can be resolved.
    pub(super) async fn resolve(&self) -> Result<(), RedisStartError> {
        let mut resolved = Ok(());
        for sentinel in &self.sentinels {
            resolved = sentinel.resolve().await;
            if resolved.is_ok() {
                break;
            }
        }
        resolved
    }

    /// Connects to the present master.
    pub(super) async fn connect(
        &self,
        settings: &RedisSettings,
    ) -> Result<(RedisAddress, MultiplexedConnection), ConnectError> {
        let named = self.ask(settings).await?;
        let master = self.server.of_peer(named.host, named.port);
        let (sentinel, name) = (named.sentinel.name(), master.name());
        let failed = |why: ConnectError| {
            // Another sentinel may know more.
            self.first.fetch_add(1, Ordering::Relaxed);
            why
        };
        let mut connection = master.open(settings).await.map_err(|why| {
            failed(match why {
                // Not refused: the sentinels are asked each time, and may be busy with the choice of another master.
                ConnectError::Refused(why) | ConnectError::Unreachable(why) => ConnectError::Unreachable(format!(
                    "the master {name}: {why} (if it runs, sentinel {sentinel} gives an address that does not lead \
                     there from here: set `replica-announce-ip` on the servers and that of `sentinel monitor`)"
                )),
                ConnectError::Rejected(why) => {
                    ConnectError::Rejected(format!("the master {name}: {why}"))
                }
            })
        })?;
        if is_replica(&mut connection, settings).await {
            return Err(failed(ConnectError::Unreachable(format!(
                "{name}, the master according to sentinel {sentinel}, is a replica: a failover is in progress"
            ))));
        }
        Ok((master, connection))
    }

    /// Returns the address of the present master, if a sentinel answers.
    pub(super) async fn present(&self, settings: &RedisSettings) -> Option<RedisAddress> {
        let named = self.ask(settings).await.ok()?;
        Some(self.server.of_peer(named.host, named.port))
    }

    /// Asks one sentinel after the other.
    async fn ask(&self, settings: &RedisSettings) -> Result<NamedMaster<'_>, ConnectError> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.sentinels.len());
        let (mut faults, mut is_rejected) = (Vec::new(), false);
        for at in (0..count).map(|step| first.wrapping_add(step) % count) {
            let sentinel = &self.sentinels[at];
            match ask_one(sentinel, &self.master, settings).await {
                Ok((host, port)) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(NamedMaster {
                        sentinel,
                        host,
                        port,
                    });
                }
                Err(why) => {
                    faults.push(format!("sentinel {}: {why}", sentinel.name()));
                    is_rejected |= matches!(why, ConnectError::Rejected(_));
                }
            }
        }
        let why = faults.join(", ");
        Err(if is_rejected {
            ConnectError::Rejected(why)
        } else {
            ConnectError::Unreachable(why)
        })
    }
}

async fn ask_one(
    sentinel: &RedisAddress,
    master: &str,
    settings: &RedisSettings,
) -> Result<(String, u16), ConnectError> {
    let mut connection = sentinel.open(settings).await?;
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("get-master-addr-by-name").arg(master);
    let reply = timeout(
        settings.connect_deadline,
        ask.query_async::<Value>(&mut connection),
    );
    let reply = reply.await.map_err(|_| ConnectError::late())?;
    let reply = reply.map_err(|error| ConnectError::of(&error))?;
    if reply == Value::Nil {
        return Err(ConnectError::Rejected(format!(
            "no master is called {master}"
        )));
    }
    redis::from_redis_value(reply)
        .map_err(|_| ConnectError::Rejected("the address is unreadable".to_owned()))
}

/// Returns whether the server says that it is a replica. A user without permission to ask for that is none.
async fn is_replica(connection: &mut MultiplexedConnection, settings: &RedisSettings) -> bool {
    let role = redis::cmd("ROLE");
    let role = timeout(
        settings.connect_deadline,
        role.query_async::<Value>(connection),
    );
    let Ok(Ok(Value::Array(role))) = role.await else {
        return false;
    };
    matches!(role.first(), Some(Value::BulkString(role)) if role == b"slave")
}
