-- Changes all named documents, or none. ARGV[2]: memory limit in bytes; ARGV[3]: approximate length of the
-- stream; ARGV[4]: earlier versions to store per document; then nine per document: name, operation (`put`,
-- `patch`, `check` or `delete`), the version a patch was applied to, If-Match, If-None-Match, lifetime in
-- milliseconds (`0`: unlimited, `keep`: unchanged), size, content, and the patch preceded by the number of
-- its base version. A condition is empty, `*`, or versions with a space before and after each. Returns
-- `done`, the epoch, the newest number, and for each document the outcome and the number of its version;
-- otherwise the reason.
local before, versions_before = size + past, tonumber(ARGV[4])
local planned, entries, done = {}, {}, { 'done' }

local function names(versions, version)
  return versions == '*' or string.find(versions, ' ' .. version .. ' ', 1, true)
end

local function plan(name, kind, base, only, never, lives, room, content, patch)
  local there = planned[name]
  if there == nil then there = parse(redis.call('HGET', documents, name)) end
  local live = is_live(there) and there
  local version = live and epoch .. '.' .. live.number
  if not live and kind ~= 'put' then return { 'missing' } end
  if only ~= '' and not (version and names(only, version)) then return { 'condition' } end
  if never ~= '' and version and names(never, version) then return { 'condition' } end
  if base ~= '' and base ~= version then return { 'stale', epoch, live.number } end
  if kind == 'check' then return end
  local gone = kind == 'delete'
  local expires = '0'
  if lives == 'keep' then
    expires = live.expires
  elseif lives ~= '0' then
    expires = text(now + lives)
  end
  if live and not gone and expires == '0' and live.expires == '0' and string.sub(live.record, live.content) == content then
    done[#done + 1], done[#done + 2] = 'same', live.number
    return
  end
  local number = take_number()
  size = size - (there and there.size or 0)
  if gone then
    planned[name] = false
    shorten(name, 0)
  else
    if there then keep(name, there, number, versions_before) end
    size = size + room
    local from, difference = string.match(patch, '^(%d+) ()')
    difference = from and string.sub(patch, difference) or ''
    local head = string.format('%s %s %s %s %d\n', number, expires, room, from or '0', #difference)
    planned[name] = parse(head .. difference .. content)
  end
  entries[#entries + 1] = { number .. '-0', gone and 'gone' or 'put', name }
  done[#done + 1], done[#done + 2] = gone and 'deleted' or live and 'changed' or 'created', number
end

for i = 5, #ARGV, 9 do
  local refused = plan(unpack(ARGV, i, i + 8))
  if refused then return refused end
end
if size + past > tonumber(ARGV[2]) and size + past > before then return { 'full' } end
table.insert(done, 2, epoch)
table.insert(done, 3, text(newest))
if #entries == 0 then return done end
-- Writes that free memory are also executed when Redis has none left: a script that begins with a deletion is
-- not rejected.
if size + past < before then
  for name in pairs(planned) do redis.call('HDEL', documents, name) end
end
redis.call('HSET', documents, 'newest', text(newest), 'size', text(size))
for name, document in pairs(planned) do
  if document then
    redis.call('HSET', documents, name, document.record)
  else
    redis.call('HDEL', documents, name)
  end
end
write_past()
for _, entry in ipairs(entries) do
  redis.call('XADD', changes, 'MAXLEN', '~', ARGV[3], entry[1], entry[2], entry[3])
end
return done
