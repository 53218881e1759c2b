-- What scripts do: calls, tables, strings, closures, sorting.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end

local function queens(n)
  local found, rows, up, down = 0, {}, {}, {}
  local function place(column)
    if column > n then found = found + 1 return end
    for row = 1, n do
      if not rows[row] and not up[row + column] and not down[row - column] then
        rows[row], up[row + column], down[row - column] = true, true, true
        place(column + 1)
        rows[row], up[row + column], down[row - column] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end

local function words(count)
  local seen, list, seed = {}, {}, 42
  for _ = 1, count do
    seed = (seed * 1103515245 + 12345) % 2147483648
    local word = string.format("%x", seed % 50021)
    if not seen[word] then list[#list + 1] = word end
    seen[word] = (seen[word] or 0) + 1
  end
  table.sort(list, function(a, b) return seen[a] > seen[b] or seen[a] == seen[b] and a < b end)
  local text = table.concat(list, " ")
  local digits = 0
  for _ in text:gmatch("%d+") do digits = digits + 1 end
  return #list, digits, #text:gsub("a", "<%0>")
end

print(fib(32), queens(8), words(800000))
