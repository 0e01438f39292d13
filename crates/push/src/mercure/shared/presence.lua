-- Records a sign of life of a node, and that subscriptions of a node begin or end. ARGV[2], ARGV[3]: limits of the stream of
-- presence events and of all subscriptions, in bytes; ARGV[4]: lifetime of a node without a sign of life, in milliseconds;
-- ARGV[5], ARGV[6]: the calling node, and the one whose subscriptions these are; then three per subscriber: `join` or
-- `leave`, its id, and its subscriptions. Subscriptions of another node end only if there is no such node any more. Returns
-- `done`, or `full` if not all of them fit; then all nodes.
redis.call('ZREMRANGEBYSCORE', nodes, '-inf', text(now - ARGV[4]))
redis.call('ZADD', nodes, text(now), ARGV[5])
local reply = redis.call('ZRANGE', nodes, 0, -1)
if ARGV[5] ~= ARGV[6] and redis.call('ZSCORE', nodes, ARGV[6]) then
  table.insert(reply, 1, 'done')
  return reply
end
local outcome = 'done'
local bytes = tonumber(redis.call('HGET', subscriptions, 'bytes') or 0) or 0
for i = 7, #ARGV, 3 do
  local kind, subscriber, record = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local field = 's ' .. subscriber
  local known = redis.call('HGET', subscriptions, field)
  local room = #field + #(known or record) + 64
  if kind == 'leave' and known then
    bytes = math.max(0, bytes - room)
    redis.call('HDEL', subscriptions, field)
  elseif kind == 'join' and not known and bytes + room <= tonumber(ARGV[3]) then
    bytes = bytes + room
    redis.call('HSET', subscriptions, field, record)
  elseif kind == 'join' and not known then
    outcome, kind = 'full', nil
  else
    kind = nil
  end
  if kind then
    redis.call('HSET', subscriptions, 'bytes', text(bytes))
    append(presence, tonumber(ARGV[2]), room + #record + 256, subscriber, kind, record)
  end
end
table.insert(reply, 1, outcome)
return reply
