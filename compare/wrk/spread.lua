-- Asks for a random one of many urls. The requests are written out beforehand, so that the choice costs wrk one table look-up;
-- it costs the server nothing but the look-up that is to be measured.
-- Arguments: path, number of urls.
local requests = {}

function init(args)
  for n = 1, tonumber(args[2]) do
    requests[n] = wrk.format("GET", args[1] .. "/" .. n)
  end
  math.randomseed(tonumber(args[2]))
end

function request()
  return requests[math.random(#requests)]
end
