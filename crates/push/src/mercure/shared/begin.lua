-- The common part of all scripts. KEYS: the updates and the presence events, two streams whose entries have one order; the
-- subscriptions by subscriber (hash); the nodes that have some, by the time of their last sign of life (sorted set).
-- ARGV[1]: a number from 1 to 1000, which differs between calls.
--
-- The id of an entry is the server's time in microseconds. An entry has two fields. The name of the first one is the id of
-- the entry before, the bytes of all entries before, and its own bytes; a reader thus notices missing ones. Its value is
-- the topics of an update, or the subscriber. The second one is the media type and the event of an update, or `join` or
-- `leave` and the subscriptions. Under `bytes`, the hash has the size of all subscriptions.
local updates, presence, subscriptions, nodes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number) return string.format('%.0f', number) end

-- Returns the id of the last entry of a stream, its number, and the bytes of all entries so far. It is read once, because it
-- may be long.
local tails = {}
local function tail_of(stream)
  if not tails[stream] then
    local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
    local before, own = string.match(last and last[2][1] or '', '^%S+ (%d+) (%d+)$')
    local id = last and last[1] or '0-0'
    tails[stream] = { id = id, number = tonumber(string.match(id, '^%d+')), bytes = before and before + own or 0 }
  end
  return tails[stream]
end

-- Appends an entry, and removes the oldest ones of its stream beyond a limit of bytes. Returns its number. Those of lost
-- entries are not assigned again: if the clock was set back, the skipped numbers make a collision unlikely.
local function append(stream, capacity, room, name, kind, content)
  local last, newest = tail_of(stream), math.max(tail_of(updates).number, tail_of(presence).number)
  local number = math.max(time[1] * 1000000 + time[2], newest + ARGV[1])
  local head = last.id .. ' ' .. text(last.bytes) .. ' ' .. text(room)
  -- First, because a server without free memory executes scripts that free some.
  for _ = 1, 1000 do
    local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    local before = string.match(oldest[2][1], '^%S+ (%d+) %d+$')
    local length = before and last.bytes + room - before
    if length and length >= 0 and length <= capacity then break end
    redis.call('XDEL', stream, oldest[1])
  end
  local id = text(number) .. '-0'
  redis.call('XADD', stream, id, head, name, kind, content)
  tails[stream] = { id = id, number = number, bytes = last.bytes + room }
  return text(number)
end
