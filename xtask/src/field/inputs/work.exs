# Streams, maps, tasks.
fib = fn
  n, _ when n < 2 -> n
  n, fib -> fib.(n - 1, fib) + fib.(n - 2, fib)
end

[rounds] = System.argv()

for round <- 1..String.to_integer(rounds) do
  counts =
    Stream.iterate(41 + round, &rem(&1 * 16807, 2_147_483_647))
    |> Stream.map(&"w#{Integer.to_string(rem(&1, 5000), 16)}")
    |> Enum.take(60_000)
    |> Enum.frequencies()

  {word, count} = Enum.min_by(counts, fn {word, count} -> {-count, word} end)
  sums = 1..2 |> Enum.map(&Task.async(fn -> fib.(19 + &1, fib) end)) |> Enum.map(&Task.await/1)
  IO.puts("#{word} #{count} #{inspect(sums)}")
end
