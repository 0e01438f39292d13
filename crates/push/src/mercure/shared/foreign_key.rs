//! Keys of the hub that another program has written to.
//!
//! Redis says that a key has the wrong type, and not which one. The hub's keys are thus asked for what they contain,
//! with commands that its user may execute anyway. None is deleted: the data may be of use to its owner.

use microcache_store::redis::{Cmd, NoReply, cmd};

use crate::fleet::connection::{FleetConnection, REPLY_TIMEOUT};

/// Reply of Redis to a command for keys of another type.
const WRONG_TYPE: &str = "WRONGTYPE";

/// Adds the names of the keys and the remedy if a command failed because keys have the wrong type.
pub(super) async fn explained(connection: &FleetConnection, why: NoReply) -> NoReply {
    if !is_wrong_type(&why) {
        return why;
    }
    let mut foreign = Vec::new();
    for (key, probe) in connection.hub.iter().zip(probes(&connection.hub)) {
        let reply = connection.line.request(&probe, REPLY_TIMEOUT).await;
        if reply.is_err_and(|why| is_wrong_type(&why)) {
            foreign.push(&**key);
        }
    }
    if foreign.is_empty() {
        // It was deleted meanwhile.
        return why;
    }
    NoReply::Refused(remedy(&foreign))
}

fn is_wrong_type(why: &NoReply) -> bool {
    matches!(why, NoReply::Refused(text) if text.contains(WRONG_TYPE))
}

fn remedy(keys: &[&str]) -> String {
    format!(
        "another program has written to keys of the Mercure hub: delete them (DEL {}), and give that program a database \
         or a prefix of its own",
        keys.join(" ")
    )
}

/// Commands that fail if a key has the wrong type, and whose replies are short.
fn probes([updates, presence, subscriptions, nodes]: &[String; 4]) -> [Cmd; 4] {
    let probe = |command: &str, key: &str, arguments: &[&str]| {
        let mut probe = cmd(command);
        probe.arg(key).arg(arguments);
        probe
    };
    [
        probe("XRANGE", updates, &["0-1", "0-1"]),
        probe("XRANGE", presence, &["0-1", "0-1"]),
        probe("HGET", subscriptions, &["bytes"]),
        probe("ZSCORE", nodes, &["0"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_about_another_type_are_recognized() {
        let script = "WRONGTYPE: Operation against a key holding the wrong kind of value script: 1";
        for (why, expected) in [
            (NoReply::Refused(script.to_owned()), true),
            (NoReply::Refused(remedy(&["mcd1u"])), false),
            (NoReply::Refused("NOPERM".to_owned()), false),
            (NoReply::Broken(WRONG_TYPE.to_owned()), false),
            (NoReply::Down, false),
        ] {
            assert_eq!(is_wrong_type(&why), expected, "{why}");
        }
    }
}
