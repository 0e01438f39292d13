//! Check of a server: commands that it does not know or permit, and settings with which it loses more than it
//! has to.

use std::sync::LazyLock;

use redis::Value;

use super::RedisInner;
use super::node::CommandError;
use super::record::log_key;
use super::scripts::Script;
use crate::tier::EntryId;

/// Commands without which only announcements are missing.
const FOR_ANNOUNCEMENTS: [&str; 3] = ["SADD", "SMEMBERS", "PUBLISH"];

/// Errors of Redis and Valkey, of different versions, for a command that is not known or not permitted.
const REFUSALS: [&str; 4] = ["nknown", "NOPERM", "permission", "executing the script"];

/// Tries the commands of the tier on keys of its own, and returns those that failed, each with its error.
/// Arguments: key of a log, channel.
static TRY_ALL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local failed = {} \
         local function try(command, ...) \
           local reply = redis.pcall(command, ...) \
           if type(reply) == 'table' and reply.err then \
             table.insert(failed, command) \
             table.insert(failed, tostring(reply.err)) \
           end \
         end \
         local record, claim, channels, log = KEYS[1], KEYS[2], KEYS[3], ARGV[1] \
         try('SET', record, 'x', 'PX', 1000) try('SETRANGE', record, 0, 'y') try('PEXPIRE', record, 1000) \
         try('GET', record) try('GETRANGE', record, 0, 0) try('STRLEN', record) try('PTTL', record) \
         try('SADD', channels, 'x') try('SMEMBERS', channels) try('PUBLISH', ARGV[2], '') \
         try('XADD', log, 'MAXLEN', '~', 1, '1-1', 'r', 'x') try('XRANGE', log, '-', '+', 'COUNT', 1) \
         try('XREVRANGE', log, '+', '-', 'COUNT', 1) try('TIME') try('SCAN', 0, 'COUNT', 1) \
         try('UNLINK', record, claim, channels) try('DEL', log) \
         return failed",
    )
});

impl RedisInner {
    /// Checks the server of the log, if it can be reached, and remembers what an operator should know.
    ///
    /// # Errors
    ///
    /// The commands without which the tier cannot work.
    pub(super) async fn check(&self) -> Result<(), String> {
        let id = EntryId::of(b"check of the server");
        let deadline = || self.settings.background_deadline();
        let channel = self.announcements.log_channel();
        let arguments = [log_key(id).into_bytes(), channel.as_bytes().to_vec()];
        let failed = match self.call(&TRY_ALL, id, &arguments, deadline()).await {
            Ok(failed) => redis::from_redis_value(failed).unwrap_or_default(),
            Err(CommandError::Server(error)) if is_refusal(&error.to_string()) => {
                vec!["EVAL".to_owned(), error.to_string()]
            }
            Err(_) => return Ok(()),
        };
        let (optional, needed): (Vec<_>, Vec<_>) = missing(&failed)
            .into_iter()
            .partition(|command| FOR_ANNOUNCEMENTS.contains(command));
        if !needed.is_empty() {
            return Err(format!(
                "{}: Redis 5 or newer is needed",
                unavailable(&needed)
            ));
        }
        let mut advice = Vec::new();
        if !optional.is_empty() {
            let what = unavailable(&optional);
            advice.push(format!(
                "{what}: purges and waiting requests are polled for"
            ));
        }
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        if let Ok(Value::BulkString(info)) = self.servers.send(id, &info, deadline()).await {
            advice.extend(advice_on_memory(&String::from_utf8_lossy(&info)));
        }
        *self.advice.lock() = advice;
        Ok(())
    }
}

fn is_refusal(error: &str) -> bool {
    REFUSALS.iter().any(|sign| error.contains(sign))
}

/// Returns the commands, of pairs of command and error, that are not known or not permitted.
fn missing(failed: &[String]) -> Vec<&str> {
    let pairs = failed.chunks_exact(2);
    pairs
        .filter(|pair| is_refusal(&pair[1]))
        .map(|pair| &pair[0][..])
        .collect()
}

/// Describes commands that are not available, with the rules that permit them to an ACL user.
fn unavailable(commands: &[&str]) -> String {
    let rules: Vec<_> = commands
        .iter()
        .map(|command| format!("+{}", command.to_lowercase()))
        .collect();
    format!(
        "the server does not know or permit {} (for an ACL user: {} ~mc1:* ~mcl1:* &mc1:* &mcl1:*)",
        commands.join(", "),
        rules.join(" ").replace("+eval", "+eval +evalsha"),
    )
}

/// Describes a policy for a full memory that loses what is in use.
fn advice_on_memory(info: &str) -> Option<String> {
    let value = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    if value("maxmemory")? == "0" {
        return None;
    }
    let policy = value("maxmemory_policy")?;
    let loses = match policy {
        "noeviction" => "once its memory is full, the server takes neither responses nor purges",
        "allkeys-random" | "volatile-random" | "volatile-ttl" => {
            "it evicts claims, and the purge log if it evicts keys without a TTL, while they are in use"
        }
        _ => return None,
    };
    Some(format!(
        "maxmemory-policy {policy}: {loses}; set allkeys-lru"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refused_commands_are_missing() {
        let failed = [
            "XADD",
            "ERR Unknown Redis command called from script script: f_1",
            "SADD",
            "ERR The user executing the script can't run this command or subcommand",
            "GET",
            "NOPERM this user has no permissions to run the 'get' command",
            "SET",
            "READONLY You can't write against a read only replica.",
            "DEL",
            "OOM command not allowed when used memory > 'maxmemory'.",
        ];
        assert_eq!(missing(&failed.map(str::to_owned)), ["XADD", "SADD", "GET"]);
    }

    #[test]
    fn policies_that_lose_what_is_in_use() {
        let of = |limit: u64, policy: &str| {
            let info = format!("# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n");
            advice_on_memory(&info).is_some()
        };
        for policy in ["noeviction", "allkeys-random", "volatile-ttl"] {
            assert!(of(1, policy) && !of(0, policy), "{policy}");
        }
        assert!(!of(1, "allkeys-lru") && advice_on_memory("").is_none());
    }
}
