//! Lua scripts. The keys of a script are in the same slot: record, claim, and the channels on which the end of
//! the claim is announced. What concerns announcements may fail, if the user of the server has no permission.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Cmd;

/// Returns 1 if the claim was granted, otherwise 0. A foreign claim that lasts longer than the caller's would,
/// which is forged or by a process with another `claim_timeout`, is shortened, so that it does not delay
/// requests again and again. Arguments: token, lifetime, channel for the announcement of its end, if any.
const CLAIM_TEXT: &str = "\
    if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
    local left = redis.call('PTTL', KEYS[2]) \
    if left == -1 or left > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end \
    if ARGV[3] ~= '' then \
      redis.pcall('SADD', KEYS[3], ARGV[3]) \
      redis.pcall('PEXPIRE', KEYS[3], ARGV[2]) \
    end \
    return 0";

/// Ends the claim.
const END: &str = "\
    local function finish() \
      redis.call('DEL', KEYS[2]) \
      local channels = redis.pcall('SMEMBERS', KEYS[3]) \
      for _, channel in ipairs(channels) do redis.pcall('PUBLISH', channel, KEYS[1]) end \
      if channels.err or #channels > 0 then redis.pcall('DEL', KEYS[3]) end \
    end ";

/// Claims an entry.
pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(CLAIM_TEXT));

/// Returns the record, or claims the entry if it is missing. Additional argument: offset of the last byte to
/// return.
pub(super) static CLAIM_IF_MISSING: LazyLock<Script> = LazyLock::new(|| {
    let record = "\
        if redis.call('STRLEN', KEYS[1]) > 0 then \
          return redis.call('GETRANGE', KEYS[1], 0, ARGV[4]) \
        end ";
    Script::new([record, CLAIM_TEXT].concat())
});

/// Returns 1 if the record was stored under the caller's claim, otherwise 0. Arguments: token, lifetime,
/// record.
pub(super) static STORE_IF_CLAIMED: LazyLock<Script> = LazyLock::new(|| {
    ending(
        "if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end \
         redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2]) \
         finish() \
         return 1",
    )
});

/// Returns 1 if the head was replaced, otherwise 0. Arguments: expected and new head, each with its length
/// field; lifetime of the record; maximum length; optionally a token, to require and release the caller's
/// claim.
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| {
    ending(
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
         if ARGV[5] then finish() end \
         return 1",
    )
});

/// Releases the caller's claim. Argument: token.
pub(super) static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    ending(
        "if redis.call('GET', KEYS[2]) == ARGV[1] then finish() end \
         return 1",
    )
});

fn ending(text: &str) -> Script {
    Script::new([END, text].concat())
}

/// Lua script with its SHA-1 hash.
pub struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    /// Creates a script from its text.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Returns a call by hash (EVALSHA).
    pub(super) fn by_hash(&self, keys: &[String], arguments: &[impl AsRef<[u8]>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, arguments)
    }

    /// Returns a call by text (EVAL), which also loads the script.
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
