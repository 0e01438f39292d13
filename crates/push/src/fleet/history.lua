-- Earlier versions, as many per document as nodes want. A version is stored under its number, a space and the
-- name: the number of the next version, a newline, and the document. Under the name: the number of the oldest
-- version, and how many there are. Under `size`: the memory of all of them. Changes made here are stored by
-- `write_past`.
local past = tonumber(redis.call('HGET', history, 'size') or 0)
local rows, kept, dropped = {}, {}, {}

local function row_of(name)
  if not rows[name] then
    local oldest, count = string.match(redis.call('HGET', history, name) or '', '^(%d+) (%d+)$')
    rows[name] = { oldest = oldest, count = tonumber(count or 0) }
  end
  return rows[name]
end

-- Removes the oldest versions of a document beyond a limit.
local function shorten(name, most)
  local row = row_of(name)
  while row.count > most do
    local place = row.oldest .. ' ' .. name
    local oldest = kept[place] or redis.call('HGET', history, place) or ''
    local behind, room = string.match(oldest, '^(%d+)\n%d+ %d+ (%d+) ')
    past = past - (room or 0)
    kept[place], dropped[#dropped + 1] = nil, place
    -- The entry may have been removed from outside; the later ones cannot be found then.
    row.oldest, row.count = behind, behind and row.count - 1 or 0
  end
end

-- Stores a document as an earlier version, before the version with this number.
local function keep(name, document, number, most)
  local row = row_of(name)
  if most > 0 then
    kept[document.number .. ' ' .. name] = number .. '\n' .. document.record
    past = past + document.size
    if row.count == 0 then row.oldest = document.number end
    row.count = row.count + 1
  end
  shorten(name, most)
end

local function write_past()
  if not next(rows) then return end
  for _, place in ipairs(dropped) do redis.call('HDEL', history, place) end
  for place, record in pairs(kept) do redis.call('HSET', history, place, record) end
  for name, row in pairs(rows) do
    if row.count > 0 then
      redis.call('HSET', history, name, row.oldest .. ' ' .. row.count)
    else
      redis.call('HDEL', history, name)
    end
  end
  redis.call('HSET', history, 'size', text(past))
end
