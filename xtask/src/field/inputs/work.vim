" Functions, dictionaries, substitutions and sorts.
function Fib(n)
  return a:n < 2 ? a:n : Fib(a:n - 1) + Fib(a:n - 2)
endfunction
let seed = 42
let counts = {}
for i in range(40000)
  let seed = seed * 16807 % 2147483647
  let word = printf('w%x', seed % 5000)
  let counts[word] = get(counts, word, 0) + 1
endfor
call setline(1, map(range(20000), 'printf("%d line of text %d", v:val * 7919 % 10007, v:val)'))
sort n
%s/\(\w\+\) of \(\w\+\)/\2 of \1/
call append(0, Fib(17) . ' ' . max(counts))
write! out.txt
quit!
