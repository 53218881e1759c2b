-- Calls, tables, strings: what both Lua and LuaJIT can run.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end

local function words(count)
  local seed, counts, names = 42, {}, {}
  for _ = 1, count do
    seed = (seed * 16807) % 2147483647
    local word = string.format("w%x", seed % 5000)
    if not counts[word] then counts[word] = 0; names[#names + 1] = word end
    counts[word] = counts[word] + 1
  end
  table.sort(names, function(a, b)
    if counts[a] == counts[b] then return a < b end
    return counts[a] > counts[b]
  end)
  return names[1] .. " " .. counts[names[1]]
end

local rounds = tonumber(arg[1])
for _ = 1, rounds do io.write(fib(27), " ", words(200000), "\n") end
