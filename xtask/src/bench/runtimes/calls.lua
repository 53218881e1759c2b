-- Recursion, comparators below table.sort, callbacks below string.gsub, and a loop that becomes a trace.
local function leaf(value)
  for round = 1, 12 do value = (value * 1664525 + round) % 4294967296 end
  return value % 4096
end
local function tree(depth, value)
  if depth == 0 then return leaf(value) end
  return tree(depth - 1, value + 1) + tree(depth - 1, value + depth)
end
local function sorted(count)
  local numbers = {}
  for index = 1, count do numbers[index] = (index * 7919) % count end
  table.sort(numbers, function(one, other) return leaf(one) < leaf(other) end)
  return numbers[1]
end
local function replaced(count)
  return #string.gsub(string.rep("call path ", count), "%a+", function(word) return leaf(#word) end)
end
local function looped(count)
  local sum = 0
  for index = 1, count do sum = sum + leaf(index) end
  return sum
end
local ends = os.clock() + tonumber(arg[1]) / 1000
local sum = 0
while os.clock() < ends do sum = sum + tree(12, 1) + sorted(2000) + replaced(200) + looped(20000) end
print(sum ~= 0)
