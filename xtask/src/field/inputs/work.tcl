# Procedures, dictionaries, strings.
proc fib n { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
proc words count {
    set seed 42
    for {set i 0} {$i < $count} {incr i} {
        set seed [expr {$seed * 16807 % 2147483647}]
        dict incr counts w[format %x [expr {$seed % 5000}]]
    }
    lindex [lsort -stride 2 -index 1 -integer -decreasing [lsort -stride 2 $counts]] 0
}
for {set round 0} {$round < [lindex $argv 0]} {incr round} { puts "[fib 22] [words 100000]" }
