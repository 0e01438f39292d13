-- Asks for one of many urls, for the n-th most popular 1/n as often as for the most popular one (Zipf with exponent 1).
-- Popular urls are spread over all of them, as they would not have been stored one after the other.
-- Arguments: path, number of urls.
local SPREAD = 611953 -- a prime, so that no two ranks have the same url
local head, tail
local urls

function init(args)
  urls = tonumber(args[2])
  head, tail = wrk.format("GET", args[1] .. "/#"):match("^(.-)#(.*)$")
  math.randomseed(urls)
end

function request()
  local rank = math.floor((urls + 1) ^ math.random())
  return head .. rank * SPREAD % urls + 1 .. tail
end
