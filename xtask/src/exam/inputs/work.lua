local counts, words = {}, {}
for line in io.lines('text.txt') do for word in line:gmatch('%a+') do counts[word] = (counts[word] or 0) + 1 end end
for word in pairs(counts) do words[#words + 1] = word end
table.sort(words, function(a, b) return counts[a] > counts[b] or counts[a] == counts[b] and a < b end)
print(table.concat(words, ' '), #words)
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(12), string.format('%5.2f %s %q', 3.14159, 'x', 'y'), ('path'):rep(3, '-'), select('#', 1, 2, 3))
local co = coroutine.wrap(function(a) for i = 1, 3 do a = coroutine.yield(a * i) end error({code = 7}) end)
print(co(2), co(3), co(4)); print(pcall(co, 5)); print(pcall(error, 'x')); local t = setmetatable({}, {__index = function(_, k) return k .. '!' end, __call = function(_, x) return x + 1 end})
print(t.a, t(1), load('return 1 + ...')(2), math.floor(2.5), 7 // 2, 7.0 / 2, '10' + 5, 1 << 4); collectgarbage()
