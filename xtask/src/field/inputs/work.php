<?php
// Calls, objects, arrays, strings.
function fib(int $n): int
{
    return $n < 2 ? $n : fib($n - 1) + fib($n - 2);
}

final class Words
{
    private array $counts = [];

    public function fill(int $count): void
    {
        $seed = 42;
        for ($i = 0; $i < $count; $i++) {
            $seed = $seed * 16807 % 2147483647;
            $word = 'w' . dechex($seed % 5000);
            $this->counts[$word] = ($this->counts[$word] ?? 0) + 1;
        }
    }

    public function most(): string
    {
        uksort($this->counts, fn ($a, $b) => $this->counts[$b] <=> $this->counts[$a] ?: strcmp($a, $b));
        $word = array_key_first($this->counts);
        return "$word {$this->counts[$word]}";
    }
}

for ($round = 0; $round < (int) $argv[1]; $round++) {
    $words = new Words();
    $words->fill(300000);
    echo fib(27), ' ', $words->most(), "\n";
}
