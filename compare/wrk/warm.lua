-- Asks for every one of many urls, in order, again and again; compare/hit stops it when the origin has given each of them once.
-- Arguments: path, number of urls.
local path, urls
local asked = 0

function init(args)
  path, urls = args[1], tonumber(args[2])
end

function request()
  asked = asked + 1
  return wrk.format("GET", path .. "/" .. (asked - 1) % urls + 1)
end
