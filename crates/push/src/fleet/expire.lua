-- Takes away what has had its time. ARGV[2]: the changes that the stream keeps; then two for each: name, and the number of its version.
-- Gives `expired`, how many that were, and for each how many milliseconds it has left; zero if this version is gone.
local told, count = { 'expired', '0' }, 0
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
  told[#told + 1] = text(left)
end
write_past()
told[2] = text(count)
return told
