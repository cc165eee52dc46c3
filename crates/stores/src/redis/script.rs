//! Lua scripts for the steps that a plain command can't do. One key each, so that they run in a
//! cluster.
//!
//! All compare before they write, so a retry is safe. Those that end or renew a lease carry
//! `allow-oom`: when memory runs out, a new claim must fail, but an effect that has happened must
//! still be recorded. A wake-up that can't be published is ignored, because it is only a hint.

use redis::{Cmd, Value};
use semel_core::record::{ENCRYPTED_VERSION, FORMAT_VERSION, offset};

/// A script and its SHA-1, by which the server caches it.
pub(super) struct Script {
    text: String,
    sha1: String,
}

impl Script {
    fn new(text: String) -> Self {
        let sha1 = sha1_smol::Sha1::from(&text).hexdigest();
        Self { text, sha1 }
    }

    /// Calls it by its SHA-1.
    pub(super) fn by_sha1(&self, key: &[u8], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVALSHA", &self.sha1, key, arguments)
    }

    /// Calls it by its text. After that the server knows its SHA-1.
    pub(super) fn by_text(&self, key: &[u8], arguments: &[&[u8]]) -> Cmd {
        Self::call("EVAL", &self.text, key, arguments)
    }

    fn call(command: &str, script: &str, key: &[u8], arguments: &[&[u8]]) -> Cmd {
        let bytes: usize = arguments.iter().map(|argument| argument.len()).sum();
        let mut cmd = sized(
            command,
            arguments.len() + 4,
            script.len() + key.len() + bytes,
        );
        cmd.arg(script).arg(1).arg(key);
        for argument in arguments {
            cmd.arg(*argument);
        }
        cmd
    }
}

/// A command with capacity for its arguments, so that its buffer never grows.
pub(super) fn sized(name: &str, arguments: usize, bytes: usize) -> Cmd {
    /// The name, and arguments too short to be counted.
    const SHORT_BYTES: usize = 48;
    let mut cmd = Cmd::with_capacity(arguments, bytes + SHORT_BYTES);
    cmd.arg(name);
    cmd
}

/// Reads a record.
pub(super) fn get(key: &[u8]) -> Cmd {
    let mut cmd = sized("GET", 2, key.len());
    cmd.arg(key);
    cmd
}

/// The server's time: `micros`, and `bytes` as they stand in a packed record.
const STAMP: &str = "local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local left, bytes = micros, ''
for _ = 1, 8 do
  bytes = bytes .. string.char(left % 256)
  left = math.floor(left / 256)
end";

/// All scripts of the store.
pub(super) struct Scripts {
    /// Reads a record that a claim lost to. Returns `{record, milliseconds to live, TIME}`, or nil.
    pub(super) look: Script,
    /// Writes the record of a new lease if there is none, with the server's time as its fence.
    /// → that time in microseconds, or the record that is there.
    pub(super) fresh: Script,
    /// Leaves the waiter's mark on a record that is running or in doubt. → 1, or 0 if it isn't.
    pub(super) mark: Script,
    /// Replaces a record whose header is still the one given. → 1 or 0.
    pub(super) swap: Script,
    /// Writes a settlement if the owner is the one given and the record is open. With a fourth
    /// argument, the server's time is the time of writing. → 1, or the record, or nil.
    pub(super) settle: Script,
    /// Keeps a lease if the owner is the one given and the record is running. Without a time, the
    /// server's own is written. The time of writing always grows, by a microsecond at least: a
    /// takeover swaps the header that it saw lapsed, and must not find it again (I5). → 1, or the
    /// record, or nil.
    pub(super) renew: Script,
    /// Writes a record's first byte over itself if its header is the one given, so that there is a
    /// write to wait for. Returns 1 or 0.
    pub(super) confirm: Script,
    /// Deletes a record if its seal is the one given, but keeps its fence: a released record of
    /// attempt 0 without an owner stays for a day. Returns 1 or 0.
    pub(super) delete: Script,
}

/// An empty section that readers skip. It marks a record with waiters, to which its settlement is
/// published.
pub(super) const MARK: &[u8] = &[255, 0, 0, 0, 0];

/// How long a deleted record's fence is kept. After this time, every node's estimate of the
/// server's time is past the fence, even if the server's clock was set by an hour or two.
const TOMBSTONE_MILLIS: u64 = 24 * 60 * 60 * 1_000;

/// The reply of a script that succeeded.
pub(super) const DONE: Value = Value::Int(1);

impl Scripts {
    pub(super) fn new() -> Self {
        let header_end = semel_core::record::HEADER_BYTES - 1;
        // Lua counts from 1, GETRANGE from 0.
        let (state, owner) = (offset::STATE, offset::OWNER);
        let (state_at, owner_at, owner_end) = (state + 1, owner + 1, owner + 24);
        let mark = "'\\255\\0\\0\\0\\0'";
        // A record of a version that we don't know is returned, and rejected by the reader (P25).
        // One call reads all that is looked at: calls are what costs time in a script.
        let owned = format!(
            "local old = redis.call('GET', KEYS[1])
if not old then return false end
local version = string.byte(old, 1)
local known = version == {FORMAT_VERSION} or version == {ENCRYPTED_VERSION}
local owned = known and string.sub(old, {owner_at}, {owner_end}) == ARGV[1]
local state = string.byte(old, {state_at})"
        );
        let (written, after_written) = (offset::WRITTEN, offset::WRITTEN + 9);
        let write = "redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if marked then redis.pcall('PUBLISH', KEYS[1], '') end
return 1";
        Self {
            look: Script::new(
                "#!lua flags=no-writes
local record = redis.call('GET', KEYS[1])
if not record then return false end
return {record, redis.call('PTTL', KEYS[1]), redis.call('TIME')}"
                    .to_owned(),
            ),
            fresh: fresh(),
            mark: Script::new(format!(
                "#!lua flags=allow-oom
local state = string.byte(redis.call('GETRANGE', KEYS[1], {state}, {state}))
if state ~= 1 and state ~= 4 then return 0 end
if redis.call('GETRANGE', KEYS[1], -5, -1) ~= ARGV[1] then redis.call('APPEND', KEYS[1], ARGV[1]) end
return 1"
            )),
            swap: Script::new(format!(
                "#!lua flags=allow-oom
if redis.call('GETRANGE', KEYS[1], 0, {header_end}) ~= ARGV[1] then return 0 end
local marked = redis.call('GETRANGE', KEYS[1], -5, -1) == {mark}
{write}"
            )),
            settle: Script::new(format!(
                "#!lua flags=allow-oom
{owned}
if not (owned and (state == 1 or state == 4)) then return old end
local marked = string.sub(old, -5) == {mark}
if ARGV[4] then
  {STAMP}
  ARGV[2] = string.sub(ARGV[2], 1, {written}) .. bytes .. string.sub(ARGV[2], {after_written})
end
{write}"
            )),
            renew: renew(&owned),
            confirm: Script::new(format!(
                "#!lua flags=allow-oom
if redis.call('GETRANGE', KEYS[1], 0, {header_end}) ~= ARGV[1] then return 0 end
redis.call('SETRANGE', KEYS[1], 0, string.sub(ARGV[1], 1, 1))
return 1"
            )),
            delete: delete(),
        }
    }
}

/// Times are little-endian: compared from their last byte, counted up from their first.
fn renew(owned: &str) -> Script {
    let (written, written_at) = (offset::WRITTEN, offset::WRITTEN + 1);
    Script::new(format!(
        "#!lua flags=allow-oom
{owned}
if not (owned and state == 1) then return old end
local was, now = string.sub(old, {written_at}, {written_at} + 7), ARGV[2]
local grows = false
if now == '' then
  {STAMP}
  now = bytes
end
for i = 8, 1, -1 do
  local before, after = string.byte(was, i), string.byte(now, i)
  if before ~= after then
    grows = before < after
    break
  end
end
if not grows then
  local carry = 1
  now = ''
  for i = 1, 8 do
    local sum = string.byte(was, i) + carry
    carry = math.floor(sum / 256)
    now = now .. string.char(sum % 256)
  end
end
redis.call('SETRANGE', KEYS[1], {written}, now)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1"
    ))
}

/// Without `allow-oom`, as every claim of a new key.
fn fresh() -> Script {
    let (fence, after_fence) = (offset::OWNER, offset::OWNER + 9);
    let (created, after_written) = (offset::CREATED, offset::WRITTEN + 9);
    Script::new(format!(
        "#!lua
local old = redis.call('GET', KEYS[1])
if old then return old end
{STAMP}
local new = string.sub(ARGV[1], 1, {fence}) .. bytes .. string.sub(ARGV[1], {after_fence}, {created}) .. bytes .. bytes
  .. string.sub(ARGV[1], {after_written})
redis.call('SET', KEYS[1], new, 'PX', ARGV[2])
return micros"
    ))
}

fn delete() -> Script {
    let header_end = semel_core::record::HEADER_BYTES - 1;
    let (seal_at, token_at) = (offset::SEAL + 1, offset::OWNER + 9);
    let attempt_at = offset::ATTEMPT + 1;
    Script::new(format!(
                "#!lua flags=allow-oom
local head = redis.call('GETRANGE', KEYS[1], 0, {header_end})
if string.sub(head, {seal_at}, {seal_at} + 15) ~= ARGV[1] then return 0 end
local version, from = string.byte(head, 1), {header_end} + 1
if version == {ENCRYPTED_VERSION} then from = from + 8
elseif version ~= {FORMAT_VERSION} then return redis.call('DEL', KEYS[1]) end
local attempt = string.sub(head, {attempt_at}, {attempt_at} + 1)
if attempt == '\\0\\0' then return 0 end
local label = string.byte(head, 95) + 256 * string.byte(head, 96)
local rest = redis.call('GETRANGE', KEYS[1], from, from + label - 1)
head = string.char({FORMAT_VERSION}) .. '\\5' .. string.sub(head, 3, {token_at} - 1) .. string.rep('\\0', 16)
  .. string.sub(head, {token_at} + 16, {attempt_at} - 1) .. '\\0\\0' .. string.sub(head, {attempt_at} + 2)
redis.call('SET', KEYS[1], head .. rest, 'PX', {TOMBSTONE_MILLIS})
redis.pcall('PUBLISH', KEYS[1], '')
return 1"
            ))
}
