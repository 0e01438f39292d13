//! A cluster of Redis servers in which a replica takes the place of a master that died.

use super::servers::LOG_KEYS;
use super::{assert_found, end, lasting};
use crate::support::{Origin, Proxy, TierServer, eventually};

const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
const PAGES: usize = 60;

/// Three masters with equal shares of the slots, and a replica of the first.
struct Cluster {
    masters: Vec<TierServer>,
    replica: TierServer,
}

impl Cluster {
    fn start() -> Self {
        let mut servers: Vec<_> = (0..=MASTERS).map(|_| member()).collect();
        for other in &servers[1..] {
            let (port, bus) = (other.port(), other.bus());
            servers[0].say(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
        }
        let share = SLOTS.div_ceil(MASTERS);
        for (number, server) in servers[..MASTERS].iter().enumerate() {
            let first = number * share;
            let last = (first + share).min(SLOTS) - 1;
            server.say(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        let replica = servers.pop().expect("four");
        let cluster = Self {
            masters: servers,
            replica,
        };
        cluster.attach_replica();
        cluster
    }

    fn attach_replica(&self) {
        let master = self.masters[0].say("CLUSTER MYID");
        eventually("the replica to know its master", || {
            self.replica
                .say("CLUSTER NODES")
                .contains(&master)
                .then_some(())
        });
        self.replica.say(&format!("CLUSTER REPLICATE {master}"));
        eventually("the replica to follow", || {
            let replication = self.replica.say("INFO replication");
            replication.contains("master_link_status:up").then_some(())
        });
        eventually("a cluster", || {
            let all = self.masters.iter().chain([&self.replica]);
            all.map(|server| (server.say("CLUSTER INFO"), server.say("CLUSTER NODES")))
                .all(|(info, nodes)| {
                    info.contains("cluster_state:ok") && nodes.matches("slave ").count() == 1
                })
                .then_some(())
        });
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec!["--redis-cluster".to_owned()];
        for server in &self.masters {
            flags.extend(server.flags());
        }
        flags
    }

    fn sizes(&self) -> Vec<usize> {
        self.masters.iter().map(size).collect()
    }
}

fn member() -> TierServer {
    // The sooner a master counts as lost, the shorter the test.
    let soon = ["--cluster-node-timeout", "500"];
    let alone = ["--cluster-require-full-coverage", "no"];
    TierServer::cluster_member(&[soon, alone].concat())
}

fn size(server: &TierServer) -> usize {
    server.say("DBSIZE").parse().expect("a number")
}

fn check(proxy: &Proxy, page: usize) {
    proxy
        .get(&format!("/{page}"))
        .assert_is(200, &format!("page {page}"));
}

/// The number before this word in what a process says of a tier at its end.
fn counted(proxy: &Proxy, word: &str) -> u64 {
    let output = proxy.output();
    let line = output
        .lines()
        .find(|line| line.starts_with("  redis: "))
        .expect("a line about Redis");
    let before = line.split(word).next().expect("a beginning");
    let number = before.trim_end().rsplit(' ').next().expect("a number");
    number.parse().expect("a number")
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_died() {
    let (origin, mut cluster) = (Origin::start(), Cluster::start());
    for page in 0..PAGES {
        let reply = lasting(format!("page {page}"));
        origin.on(&format!("/{page}")).reply(reply);
    }
    let flags = cluster.flags();
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    flags.extend(["--redis-timeout", "2s"]);
    let first = Proxy::start(&origin, &flags);
    for page in 0..PAGES {
        check(&first, page);
    }
    end(first);
    let sizes = cluster.sizes();
    assert_eq!(sizes.iter().sum::<usize>(), PAGES + LOG_KEYS);
    assert!(sizes.iter().all(|&size| size > 5), "{sizes:?}");
    eventually("the replica to have its master's records", || {
        (size(&cluster.replica) == sizes[0]).then_some(())
    });

    let mut proxy = Proxy::start(&origin, &flags);
    cluster.masters[0].kill();
    let (mut other, reported) = (0, "microcache: redis: in service again");
    eventually("the replica to be used", || {
        other += 1;
        let target = format!("/other/{other}");
        origin.on(&target).reply(lasting("another page"));
        proxy.get(&target).assert_is(200, "another page");
        proxy.output().contains(reported).then_some(())
    });
    assert_eq!(origin.count("/other/1"), 1);
    assert!(
        cluster
            .replica
            .say("INFO replication")
            .contains("role:master")
    );
    for page in 0..PAGES {
        let found = proxy.get(&format!("/{page}"));
        assert_found(&found, "redis", format!("page {page}").as_bytes());
    }
    // What is written now is there for others.
    let before = size(&cluster.replica);
    eventually("the replica to be written to", || {
        other += 1;
        let target = format!("/other/{other}");
        origin.on(&target).reply(lasting("another page"));
        proxy.get(&target).assert_is(200, "another page");
        (size(&cluster.replica) > before).then_some(())
    });
    proxy.terminate();
    assert!(proxy.wait().success());
    eventually("the last words", || {
        proxy.output().contains("  redis: ").then_some(())
    });
    assert!(counted(&proxy, "errors") > 0, "{}", proxy.output());
}
