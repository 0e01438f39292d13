-- What has changed. ARGV[2], ARGV[3]: the epoch, and the number of the last change that was read; ARGV[4], ARGV[5]: how many more are wanted,
-- and about how many bytes; ARGV[6]: `all`, if versions that others have overtaken are wanted as long as they are kept.
-- Gives the epoch, the last number, the server's time in milliseconds, and
-- `other`, if it is another life of the documents, `gap`, if changes after that one are not in the stream any more, or
-- `read`, and for each change its number, `put`, `gone`, `begins` or `overtaken`, the document's name, and what it is, or was then.
local after = ARGV[3]
local function told(word) return { epoch, text(newest), text(now), word } end

if ARGV[2] ~= epoch then return told('other') end
if #redis.call('XRANGE', changes, after .. '-0', after .. '-0') == 0 then
  local first = redis.call('XRANGE', changes, '-', '+', 'COUNT', 1)[1]
  if tonumber(string.match(first[1], '^%d+')) > tonumber(after) then return told('gap') end
  -- It was here, and was not forgotten since: the server has lost it, and may have lost others, which somebody was told of.
  begin_anew()
  return told('other')
end
local reply, bytes = told('read'), 0
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
