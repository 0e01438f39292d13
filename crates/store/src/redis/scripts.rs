//! What the server does in one go. Both keys of a script are in one slot of a cluster.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Cmd;

/// 1 if the claim is the caller's, or 0 if another process has it. A claim that lasts longer than the caller's would
/// is forged, or of a process with another `claim_timeout`: it is shortened, so that nothing waits for it again and
/// again. Arguments: token, how long a claim lasts.
const CLAIM_TEXT: &str = "\
    if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
    local left = redis.call('PTTL', KEYS[2]) \
    if left == -1 or left > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end \
    return 0";

/// The same as a script.
pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(CLAIM_TEXT));

/// The record, or that if it is missing. One more argument: the last byte wanted of a record.
pub(super) static CLAIM_IF_MISSING: LazyLock<Script> = LazyLock::new(|| {
    let record = "\
        if redis.call('STRLEN', KEYS[1]) > 0 then \
          return redis.call('GETRANGE', KEYS[1], 0, ARGV[3]) \
        end ";
    Script::new([record, CLAIM_TEXT].concat())
});

/// 1 if the claim was the caller's and the record is stored, else 0.
/// Arguments: token, how long to keep it, the record.
pub(super) static STORE_IF_CLAIMED: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end \
         redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) \
         redis.call('DEL', KEYS[2]) \
         return 1",
    )
});

/// 1 if the record began with the old head and has the new one now, else 0. Its body stays.
/// Arguments: old and new head, each with its length before it; how long to keep the record; the most
/// that it may be long; and a token, if this is to be done, and the claim to be ended, only if the claim
/// is the caller's.
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if ARGV[5] and redis.call('GET', KEYS[2]) ~= ARGV[5] then return 0 end \
         local old, new = ARGV[1], ARGV[2] \
         if redis.call('GETRANGE', KEYS[1], 0, #old - 1) ~= old then return 0 end \
         if redis.call('STRLEN', KEYS[1]) - #old + #new > tonumber(ARGV[4]) then return 0 end \
         if #old == #new then \
           redis.call('SETRANGE', KEYS[1], 0, new) \
           redis.call('PEXPIRE', KEYS[1], ARGV[3]) \
         else \
           local body = redis.call('GETRANGE', KEYS[1], #old, -1) \
           redis.call('SET', KEYS[1], new .. body, 'PX', ARGV[3]) \
         end \
         if ARGV[5] then redis.call('DEL', KEYS[2]) end \
         return 1",
    )
});

/// Ends the claim if it is the caller's. Argument: token.
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end \
         return 1",
    )
});

/// A script, and the name the server knows it by once it has seen it.
pub struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    /// What the server is to do.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// A call by name.
    pub(super) fn by_hash(&self, keys: &[String], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, arguments)
    }

    /// A call that also makes it known.
    pub(super) fn by_text(&self, keys: &[String], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        call("EVAL", &self.text, keys, arguments)
    }
}

fn call(command: &str, script: &str, keys: &[String], arguments: &[impl AsRef<[u8]>]) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(script).arg(keys.len()).arg(keys);
    for argument in arguments {
        command.arg(argument.as_ref());
    }
    command
}
