-- Publishes an update. ARGV[2], ARGV[3]: limit of the stream, and size of the update, in bytes; then the topics, the media
-- type and the event. Returns the number of the update.
return { append(updates, tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]) }
