<?php
// The work is three callbacks deep, below array_map, array_filter and array_map: compiled code runs in the frame of the
// interpreter that the innermost of them called, and jumps back into it.
function leaf(int $value): int {
    for ($round = 0; $round < 12; $round++) {
        $value = ($value * 1664525 + $round) & 0xffffffff;
    }
    return $value & 4095;
}
function work(int $count): int {
    $sum = 0;
    for ($index = 0; $index < $count; $index++) {
        $sum += leaf($index) ^ ($index % 7 == 0 ? $sum & 15 : 1);
    }
    return $sum;
}
function inner(int $value): bool {
    return array_map('work', [2000 + $value, 3000])[0] != 0;
}
function middle(int $value): int {
    return count(array_filter([$value, 2, 3], 'inner'));
}
$sum = 0;
for ($round = 0; $round < (int) $argv[1]; $round++) {
    $sum += array_sum(array_map('middle', [1, 2]));
}
echo $sum, "\n";
