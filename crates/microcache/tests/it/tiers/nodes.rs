//! Each node of a fleet lists all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::PATIENT;
use super::fleet_purge::Node;
use crate::support::{Origin, Reply, TierKind, TierServer, eventually};

#[test]
fn every_node_lists_all_that_share_its_tier() {
    for kind in TierKind::ALL {
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        origin
            .on("/")
            .reply(Reply::ok(&["Cache-Control: max-age=100"], "x"));
        let [flag, address] = server.flags();
        let flags = [&[&*flag, &*address], PATIENT].concat();
        let nodes = [(); 3].map(|()| Node::start_with(&origin, &flags));
        nodes[1].proxy.get("/").assert_is(200, "x");
        nodes[1].proxy.get("/").assert_is(200, "x");
        for node in &nodes {
            let listed = eventually("all nodes are listed", || {
                let answer = node.ask("GET /v1/nodes", "");
                assert_eq!(answer["last_error"], Value::Null, "{kind:?}");
                let listed = answer["nodes"].as_array().expect("a list").clone();
                let has_counted = listed.iter().any(|one| one["requests"] == 2);
                (listed.len() == nodes.len() && has_counted).then_some(listed)
            });
            let pids: BTreeSet<_> = listed.iter().map(|one| one["pid"].as_u64()).collect();
            assert_eq!(pids.len(), nodes.len(), "{listed:?}");
            let own: Vec<_> = listed.iter().filter(|one| one["this"] == true).collect();
            assert_eq!(own.len(), 1, "{listed:?}");
            assert_eq!(own[0]["pid"], json!(node.proxy.pid()));
            for one in &listed {
                assert_eq!(one["version"], env!("CARGO_PKG_VERSION"));
                assert_eq!(one["away_seconds"], Value::Null);
            }
        }
        drop(server);
        eventually("the reason is given", || {
            let answer = nodes[0].ask("GET /v1/nodes", "");
            let is_alone = answer["nodes"].as_array().is_some_and(|all| all.len() == 1);
            (is_alone && answer["last_error"].is_string()).then_some(())
        });
    }
}
