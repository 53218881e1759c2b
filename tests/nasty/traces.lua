-- The work is three callbacks of C deep, below string.gsub, table.sort and string.gsub: a trace runs in the frame of the
-- interpreter that the innermost of them called. The hazards: values that do not fit into registers, so that traces enlarge
-- that frame; side traces; and the return addresses of earlier calls that are left over on the stack.
local function leaf(value)
  for round = 1, 12 do value = (value * 1664525 + round) % 4294967296 end
  return value % 4096
end
local function work()
  local a, b, c, d, e, f, g, h = 1, 2, 3, 4, 5, 6, 7, 8
  for index = 1, 20000 do
    a = a + leaf(index) * 0.5; b = b + a * 0.25; c = c - b * 0.125; d = d + c
    e = e * 0.5 + d; f = f + e * 0.3; g = g - f * 0.1; h = h + g * 0.01
    if index % 7 == 0 then a = a - h end
    if index % 11 == 0 then b, c, d, e = e, d, c, b end
  end
  return a + b + c + d + e + f + g + h
end
local sum = 0
local function inner() string.gsub("ab", "%a", function() sum = sum + work() end) end
local function middle() table.sort({3, 1, 2}, function(one, other) inner() return one < other end) end
for _ = 1, tonumber(arg[1]) do string.gsub("a", "%a", middle) end
print(sum ~= 0)
