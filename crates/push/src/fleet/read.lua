-- Reads changes. ARGV[2], ARGV[3]: the epoch and number of the last change read; ARGV[4], ARGV[5]: limits of
-- changes and, approximately, of bytes; ARGV[6]: `all` to include overtaken versions that are still stored.
-- Returns the epoch, the newest number, the server's time in milliseconds, and `other` for another epoch,
-- `gap` if later changes are no longer in the stream, or `read` and for each change its number, `put`,
-- `gone`, `begins` or `overtaken`, the name, and the document as it is or was then.
local after = ARGV[3]
local function answer(word) return { epoch, text(newest), text(now), word } end

if ARGV[2] ~= epoch then return answer('other') end
if #redis.call('XRANGE', changes, after .. '-0', after .. '-0') == 0 then
  local first = redis.call('XRANGE', changes, '-', '+', 'COUNT', 1)[1]
  if tonumber(string.match(first[1], '^%d+')) > tonumber(after) then return answer('gap') end
  -- The number was assigned and has not been trimmed: the server has lost it, and possibly others that
  -- subscribers have seen.
  begin_anew()
  return answer('other')
end
local reply, bytes = answer('read'), 0
local entries = redis.call('XRANGE', changes, text(after + 1) .. '-0', '+', 'COUNT', ARGV[4])
for _, entry in ipairs(entries) do
  local number, kind, name = string.match(entry[1], '^%d+'), entry[2][1], entry[2][2]
  local record = ''
  if kind == 'put' then
    record = redis.call('HGET', documents, name) or ''
    if string.match(record, '^%d+') ~= number then
      local before = ARGV[6] == 'all' and redis.call('HGET', history, number .. ' ' .. name)
      record = before and string.match(before, '^%d+\n(.*)') or ''
      if record == '' then kind = 'overtaken' end
    end
  end
  for _, one in ipairs({ number, kind, name, record }) do reply[#reply + 1] = one end
  bytes = bytes + #record
  if bytes > tonumber(ARGV[5]) then break end
end
return reply
