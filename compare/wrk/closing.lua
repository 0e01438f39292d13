-- Asks for one url, and ends the connection with every n-th request. Connections take turns, so that each has n requests on average.
-- Arguments: path, n.
local staying, closing
local every
local asked = 0

function init(args)
  staying = wrk.format("GET", args[1])
  wrk.headers["Connection"] = "close"
  closing = wrk.format("GET", args[1])
  every = tonumber(args[2])
end

function request()
  asked = asked + 1
  return asked % every == 0 and closing or staying
end
