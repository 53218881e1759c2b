<?php
// Recursion, comparators below usort, callbacks below preg_replace_callback and array_map.
function leaf(int $value): int {
    for ($round = 0; $round < 12; $round++) {
        $value = ($value * 1664525 + $round) & 0xffffffff;
    }
    return $value & 4095;
}
function tree(int $depth, int $value): int {
    return $depth == 0 ? leaf($value) : tree($depth - 1, $value + 1) + tree($depth - 1, $value ^ $depth);
}
function weigh(int $one, int $other): int {
    return leaf($one) <=> leaf($other);
}
function sorted(int $count): int {
    $numbers = array_map(fn (int $index) => ($index * 7919) % $count, range(1, $count));
    usort($numbers, 'weigh');
    return $numbers[0];
}
function replaced(int $count): int {
    $words = str_repeat('call path ', $count);
    return strlen(preg_replace_callback('/[a-z]+/', fn (array $found) => (string) leaf(strlen($found[0])), $words));
}
$until = hrtime(true) + (int) $argv[1] * 1000000;
$sum = 0;
while (hrtime(true) < $until) {
    $sum += tree(12, 1) + sorted(2000) + replaced(200);
}
echo $sum != 0 ? "true\n" : "false\n";
