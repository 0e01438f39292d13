-- Asks for a url that was never asked for before, every time.
-- Arguments: path, a word that no other run uses.
local head, tail
local asked = 0

function init(args)
  head, tail = wrk.format("GET", args[1] .. "/" .. args[2] .. "-#"):match("^(.-)#(.*)$")
end

function request()
  asked = asked + 1
  return head .. asked .. tail
end
