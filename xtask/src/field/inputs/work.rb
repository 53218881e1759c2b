# Calls, blocks, strings, hashes.
def fib(n) = n < 2 ? n : fib(n - 1) + fib(n - 2)

def words(count)
  seed = 42
  counts = Hash.new(0)
  count.times do
    seed = seed * 16_807 % 2_147_483_647
    counts["w#{(seed % 5000).to_s(16)}"] += 1
  end
  counts.sort_by { |word, n| [-n, word] }.first
end

Integer(ARGV[0]).times { puts "#{fib(25)} #{words(150_000)}" }
