//! Cluster of three masters.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{DedicatedConnection, Redis, RedisSettings, Script};
use microcache_store::{EntryId, PutOutcome, SharedTier, Tier, TierError};
use microcache_testkit::{WAIT_TIMEOUT, eventually_async};
use redis::Value;

use crate::announcements::{is_end_announced, is_subscribed, log_news};
use crate::server::Server;
use crate::shared_log::{BEGINNING, append, last, read, texts};
use crate::{HOUR, body, id, in_service, put, settings, start, win};

const SLOTS: u16 = 16384;

/// Masters with equal shares of the slots.
async fn masters() -> Vec<Server> {
    let servers: Vec<Server> = (0..3).map(|_| Server::cluster_member()).collect();
    for (number, server) in (0..).zip(&servers) {
        let share = SLOTS / 3 + 1;
        let (first, last) = (number * share, (number * share + share - 1).min(SLOTS - 1));
        let () = server.say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        let () = server.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
    }
    for server in &servers {
        let () = servers[0].say(&meet(server));
    }
    eventually_async("a cluster", async || servers.iter().all(knows_all_slots)).await;
    servers
}

fn knows_all_slots(server: &Server) -> bool {
    let info: String = server.say("CLUSTER INFO");
    info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
}

fn meet(server: &Server) -> String {
    format!("CLUSTER MEET 127.0.0.1 {} {}", server.port(), server.bus())
}

fn of(servers: &[Server]) -> RedisSettings {
    RedisSettings {
        urls: servers.iter().map(|server| server.address()).collect(),
        cluster: true,
        ..settings("")
    }
}

/// Records on a server among those with these numbers.
fn on(server: &Server, count: u32) -> Vec<EntryId> {
    let keys: Vec<String> = server.say("KEYS *");
    let all = (0..count).map(id);
    all.filter(|id| keys.contains(&format!("mc1:{{{id}}}")))
        .collect()
}

async fn fill(redis: &Redis, count: u32) {
    for number in 0..count {
        let token = win(redis, id(number)).await;
        assert_eq!(
            put(redis, id(number), "body", Some(token)).await,
            PutOutcome::Stored
        );
    }
}

#[tokio::test]
async fn every_server_has_its_share() {
    let servers = masters().await;
    // One address suffices.
    let redis = start(RedisSettings {
        urls: vec![servers[1].address()],
        ..of(&servers)
    })
    .await;
    in_service(&redis).await;
    fill(&redis, 60).await;
    let shares: Vec<usize> = servers.iter().map(|server| on(server, 60).len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 60);
    assert!(shares.iter().all(|share| *share > 5), "{shares:?}");
    for number in 0..60 {
        assert_eq!(body(&redis, id(number)).await.as_deref(), Some("body"));
        let (from, head) = (
            Bytes::from_static(b"head"),
            Bytes::from_static(b"a new head"),
        );
        let renewed = redis
            .renew(id(number), from, head.clone(), HOUR, None)
            .await;
        assert_eq!(renewed, Ok(PutOutcome::Stored));
        assert_eq!(redis.head(id(number)).await, Ok(Some(head)));
        redis.remove(id(number)).await.unwrap();
    }
    assert!(
        servers
            .iter()
            .all(|server| server.say::<u64>("DBSIZE") == 0)
    );
}

/// One connection to one master announces what happens on all.
#[tokio::test]
async fn ends_of_claims_on_every_server_are_announced() {
    let servers = masters().await;
    let (one, two) = (start(of(&servers)).await, start(of(&servers)).await);
    for redis in [&one, &two] {
        in_service(redis).await;
        is_subscribed(redis).await;
    }
    log_news(&two).await;
    append(&*one, &["a"]).await;
    log_news(&two).await;
    let next = Cell::new(0);
    for server in &servers {
        // The links between the servers may be too new to pass on messages.
        eventually_async("announced from every server", async || {
            let id = id(next.replace(next.get() + 1));
            let is_announced = is_end_announced((&one, &two), id, Duration::from_secs(1));
            is_announced.await && on(server, next.get()).contains(&id)
        })
        .await;
    }
}

#[tokio::test]
async fn a_lost_server_costs_its_own_records_only() {
    let mut servers = masters().await;
    let redis = start(of(&servers)).await;
    in_service(&redis).await;
    fill(&redis, 60).await;
    let lost = on(&servers[0], 60);
    servers[0].kill();
    for number in 0..60 {
        let id = id(number);
        if lost.contains(&id) {
            assert!(redis.get_or_claim(id, HOUR).await.is_err());
        } else {
            assert_eq!(body(&redis, id).await.as_deref(), Some("body"));
        }
    }
    assert_eq!(redis.get(lost[0]).await.unwrap_err(), TierError::Down);
    assert_eq!(redis.stats().degraded.len(), 1);
}

#[tokio::test]
async fn a_stopped_server_is_bypassed_and_used_again() {
    let servers = masters().await;
    let impatient = RedisSettings {
        deadline: Duration::from_millis(50),
        write_deadline: Duration::from_millis(50),
        connect_deadline: Duration::from_millis(200),
        ..of(&servers)
    };
    let redis = start(impatient).await;
    in_service(&redis).await;
    eventually_async("all stored", async || {
        for number in 0..60 {
            let _ = redis
                .put(id(number), crate::entry("head", "body"), HOUR, None)
                .await;
        }
        servers
            .iter()
            .map(|server| on(server, 60).len())
            .sum::<usize>()
            == 60
    })
    .await;
    let stopped = on(&servers[2], 60);
    servers[2].freeze();
    eventually_async("out of service", async || {
        matches!(redis.get(stopped[0]).await, Err(TierError::Down))
    })
    .await;
    assert!(redis.remove(stopped[1]).await.is_err());
    servers[2].thaw();
    in_service(&redis).await;
    eventually_async("in service", async || redis.get(stopped[0]).await.is_ok()).await;
    eventually_async("removed", async || {
        !on(&servers[2], 60).contains(&stopped[1])
    })
    .await;
}

#[tokio::test]
async fn slots_that_move_are_followed() {
    let servers = masters().await;
    let redis: Arc<Redis> = start(of(&servers)).await;
    in_service(&redis).await;
    let key = format!("mc1:{{{}}}", id(1));
    let slot: u16 = servers[0].say(&format!("CLUSTER KEYSLOT {key}"));
    let from = usize::from(slot / (SLOTS / 3 + 1));
    let to = &servers[(from + 1) % 3];
    let name: String = to.say("CLUSTER MYID");
    for server in [to].into_iter().chain(&servers) {
        let _: Value = server.say(&format!("CLUSTER SETSLOT {slot} NODE {name}"));
    }
    eventually_async("stored at the new place", async || {
        redis
            .put(id(1), crate::entry("head", "body"), HOUR, None)
            .await
            == Ok(PutOutcome::Stored)
    })
    .await;
    assert_eq!(on(to, 2), [id(1)]);
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));
}

/// Keys of one slot are reachable at each step of its migration.
#[tokio::test]
async fn keys_that_are_being_moved_are_found() {
    let servers = masters().await;
    let line = DedicatedConnection::start(of(&servers), b"moved")
        .await
        .expect("a line");
    let (one, other) = (line.key("one"), line.key("other"));
    let count = Script::new("redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])");
    let keys = [one.clone(), other.clone()];
    let counted = async || line.call(&count, &keys, &[] as &[&str], WAIT_TIMEOUT).await;
    eventually_async("the line", async || counted().await.is_ok()).await;
    let moving = SlotMigration::begin(&servers, &other).await;
    let before: i64 = moving.from.say(&format!("GET {other}"));
    assert_eq!(counted().await, Ok(Value::Int(before + 1)));
    moving.migrate(&keys);
    for step in 2..50 {
        assert_eq!(counted().await, Ok(Value::Int(before + step)));
    }
    assert_eq!(
        line.request(redis::cmd("GET").arg(&one), WAIT_TIMEOUT)
            .await
            .map(drop),
        Ok(())
    );
    moving.finish();
    eventually_async("the new place", async || counted().await.is_ok()).await;
    assert!(moving.to.say::<i64>(&format!("GET {other}")) >= before + 50);
}

/// Slot that moves to a new server.
struct SlotMigration<'a> {
    servers: &'a [Server],
    from: &'a Server,
    to: Server,
    slot: u16,
    target: String,
}

impl<'a> SlotMigration<'a> {
    /// Begins to move the slot of a key.
    async fn begin(servers: &'a [Server], key: &str) -> Self {
        let from = with_key(servers, key);
        let to = joined(servers).await;
        let slot = to.say(&format!("CLUSTER KEYSLOT {key}"));
        let (source, target): (String, String) = (from.say("CLUSTER MYID"), to.say("CLUSTER MYID"));
        let () = to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        let () = from.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
        Self {
            servers,
            from,
            to,
            slot,
            target,
        }
    }

    fn migrate(&self, keys: &[String]) {
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.to.port());
        migrate.arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
        let () = self.from.send(&migrate);
    }

    fn finish(&self) {
        for server in [&self.to].into_iter().chain(self.servers) {
            let _: Value = server.say(&format!(
                "CLUSTER SETSLOT {} NODE {}",
                self.slot, self.target
            ));
        }
    }
}

/// Server that has a key.
fn with_key<'a>(servers: &'a [Server], key: &str) -> &'a Server {
    let has_it = |server: &&Server| {
        server
            .say::<Vec<String>>("KEYS *")
            .contains(&key.to_owned())
    };
    servers.iter().find(has_it).expect("one of them")
}

/// New member of a cluster, without slots, that knows the others and is known to them.
async fn joined(servers: &[Server]) -> Server {
    let new = Server::cluster_member();
    let () = servers[0].say(&meet(&new));
    let name = |server: &Server| server.say::<String>("CLUSTER MYID");
    let knows = |server: &Server, name: &str| server.say::<String>("CLUSTER NODES").contains(name);
    eventually_async("the new one to be known", async || {
        servers
            .iter()
            .all(|server| knows(server, &name(&new)) && knows(&new, &name(server)))
            && knows_all_slots(&new)
    })
    .await;
    new
}

fn log_of(servers: &[Server]) -> String {
    let mut keys = servers
        .iter()
        .flat_map(|server| server.say::<Vec<String>>("KEYS mcl1:*"));
    keys.next().expect("the log")
}

/// No purge waits for the end of a migration.
#[tokio::test]
async fn the_log_is_written_and_read_while_its_slot_moves() {
    let servers = masters().await;
    let redis = start(of(&servers)).await;
    in_service(&redis).await;
    append(&*redis, &["a"]).await;
    let before = last(&read(&*redis, 0).await);
    let key = log_of(&servers);
    let moving = SlotMigration::begin(&servers, &key).await;
    append(&*redis, &["b"]).await;
    moving.migrate(&[key]);
    append(&*redis, &["c"]).await;
    assert_eq!(texts(&read(&*redis, before).await), ["b", "c"]);
    moving.finish();
    append(&*redis, &["d"]).await;
    let page = read(&*redis, before).await;
    assert_eq!(texts(&page), ["b", "c", "d"]);
    assert!(page.is_gapless);
}

#[tokio::test]
async fn a_replica_takes_over_and_the_log_goes_on_without_a_gap() {
    let mut servers = masters().await;
    let (one, two) = (start(of(&servers)).await, start(of(&servers)).await);
    in_service(&one).await;
    append(&*one, &["a"]).await;
    let before = last(&read(&*two, 0).await);
    let key = log_of(&servers);
    let replica = joined(&servers).await;
    let lost = servers
        .iter()
        .position(|server| server.port() == with_key(&servers, &key).port());
    let master = &mut servers[lost.expect("one of them")];
    let () = replica.say(&format!(
        "CLUSTER REPLICATE {}",
        master.say::<String>("CLUSTER MYID")
    ));
    eventually_async("a copy", async || {
        replica.say::<Vec<String>>("KEYS *").contains(&key)
    })
    .await;
    master.kill();
    let () = replica.say("CLUSTER FAILOVER TAKEOVER");
    let record = Bytes::from_static(b"b");
    eventually_async("the new master", async || {
        let appended = one.append_to_log(0, vec![record.clone()], BEGINNING);
        appended.await.is_ok() && two.read_log(0, before, BEGINNING).await.is_ok()
    })
    .await;
    let page = read(&*two, before).await;
    assert_eq!(texts(&page).last().map(String::as_str), Some("b"));
    assert!(page.is_gapless);
    is_subscribed(&two).await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_yet() {
    let servers = masters().await;
    for server in &servers {
        server.freeze();
    }
    let connect_deadline = Duration::from_millis(100);
    let redis = start(RedisSettings {
        connect_deadline,
        ..of(&servers)
    })
    .await;
    assert_eq!(redis.get(id(1)).await.unwrap_err(), TierError::Down);
    assert_eq!(
        redis.stats().degraded,
        ["no server of the cluster is reachable"]
    );
    for server in &servers {
        server.thaw();
    }
    in_service(&redis).await;
    eventually_async("stored", async || {
        redis
            .put(id(1), crate::entry("head", "body"), HOUR, None)
            .await
            == Ok(PutOutcome::Stored)
    })
    .await;
}
