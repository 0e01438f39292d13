-- The common part of all scripts. KEYS: the documents by name, the stream of their changes, and earlier
-- versions (`history.lua`). ARGV[1]: the name of a new epoch, if one begins.
--
-- A document is `NUMBER EXPIRES SIZE FROM LENGTH`, a newline, a patch of that length, which applies to
-- version FROM, and the content: media type, newline, body. Next to the documents, under names that no
-- document has: `epoch`, `newest`, `size`. The stream contains the name of each changed document, not its
-- content; its ids are the numbers of the changes.
local documents, changes, history = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number) return string.format('%.0f', number) end

local state = redis.call('HMGET', documents, 'epoch', 'newest', 'size')
local epoch, newest, size = state[1], tonumber(state[2] or 0), tonumber(state[3] or 0)

-- Numbers are the server's time in microseconds, so that the numbers of lost changes are not assigned again.
-- If the clock was set back by more than a second, the random digits of the new epoch make a collision
-- unlikely.
local clock = time[1] * 1000000 + time[2]
if newest > clock + 1000000 then clock = newest + tonumber(string.sub(ARGV[1], -3), 16) end
local function take_number()
  newest = math.max(newest + 1, clock)
  return text(newest)
end

-- Invalidates all earlier changes.
local function begin_anew()
  epoch = ARGV[1]
  local number = take_number()
  -- DEL comes first: without free memory, Redis only executes scripts that begin with a command that needs
  -- none.
  redis.call('DEL', changes, history)
  redis.call('HSET', documents, 'epoch', epoch, 'newest', number, 'size', text(size))
  -- All keys exist from here on: a cluster that migrates them rejects scripts that name a missing key.
  redis.call('HSET', history, 'size', 0)
  redis.call('XADD', changes, number .. '-0', 'begins', '')
end

-- The state and the stream belong together: one of them may have been removed or evicted.
local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1]
if not epoch or not last or last[1] ~= text(newest) .. '-0' then begin_anew() end

-- Parses a document; nil if it is invalid.
local function parse(record)
  if not record then return nil end
  local number, expires, room, length, at = string.match(record, '^(%d+) (%d+) (%d+) %d+ (%d+)\n()')
  if not at then return nil end
  return { number = number, expires = expires, size = tonumber(room), content = at + length, record = record }
end

local function is_live(document)
  return document and (document.expires == '0' or tonumber(document.expires) > now)
end
