-- What all scripts begin with. KEYS: the documents, by name, the stream of their changes, and versions before (`past.lua`). ARGV[1]: the name of a new life
-- of them, if one begins.
--
-- A document is `NUMBER EXPIRES SIZE FROM LENGTH`, a new line, a patch of that length, which makes it of the version FROM, and
-- what it is: its type, a new line, its bytes. Beside the documents, under names that none has: `epoch`, `newest`, `size`.
-- The stream says which document has changed, and not to what; its ids are the numbers of the changes.
local documents, changes, history = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number) return string.format('%.0f', number) end

local state = redis.call('HMGET', documents, 'epoch', 'newest', 'size')
local epoch, newest, size = state[1], tonumber(state[2] or 0), tonumber(state[3] or 0)

-- Numbers are the server's time, in microseconds: if it loses the last changes, their numbers are not given again. Where its
-- clock was set back by more than a second, chance sees to that, of which the name of a new life has some.
local clock = time[1] * 1000000 + time[2]
if newest > clock + 1000000 then clock = newest + tonumber(string.sub(ARGV[1], -3), 16) end
local function take_number()
  newest = math.max(newest + 1, clock)
  return text(newest)
end

-- Nothing that was known of earlier changes is true any more.
local function begin_anew()
  epoch = ARGV[1]
  local number = take_number()
  -- This comes first, since whoever takes away is not refused what comes then if there is no memory left.
  redis.call('DEL', changes, history)
  redis.call('HSET', documents, 'epoch', epoch, 'newest', number, 'size', text(size))
  -- All keys are there from then on: a cluster that moves them refuses who names one that is not.
  redis.call('HSET', history, 'size', 0)
  redis.call('XADD', changes, number .. '-0', 'begins', '')
end

-- The two belong together: somebody may have removed one of them, or the server may have.
local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1]
if not epoch or not last or last[1] ~= text(newest) .. '-0' then begin_anew() end

-- A document, taken apart. What is none is as good as nothing.
local function parse(record)
  if not record then return nil end
  local number, expires, room, length, at = string.match(record, '^(%d+) (%d+) (%d+) %d+ (%d+)\n()')
  if not at then return nil end
  return { number = number, expires = expires, size = tonumber(room), content = at + length, record = record }
end

local function is_live(document)
  return document and (document.expires == '0' or tonumber(document.expires) > now)
end
