-- Deletes expired documents. ARGV[2]: approximate length of the stream; then two per document: name, and the
-- number of its version. Returns `expired`, the number of deletions, and for each document its remaining
-- lifetime in milliseconds; zero if this version is gone.
local reply, count = { 'expired', '0' }, 0
for i = 3, #ARGV, 2 do
  local name, left = ARGV[i], 0
  local there = parse(redis.call('HGET', documents, name))
  if there and there.number == ARGV[i + 1] and there.expires ~= '0' then
    left = math.max(0, tonumber(there.expires) - now)
    if left == 0 then
      count = count + 1
      local number = take_number()
      size = size - there.size
      shorten(name, 0)
      redis.call('HDEL', documents, name)
      redis.call('HSET', documents, 'newest', number, 'size', text(size))
      redis.call('XADD', changes, 'MAXLEN', '~', ARGV[2], number .. '-0', 'gone', name)
    end
  end
  reply[#reply + 1] = text(left)
end
write_past()
reply[2] = text(count)
return reply
