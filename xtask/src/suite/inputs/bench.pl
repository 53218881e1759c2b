# Words counted, sorted and matched; recursion; numbers.
use strict;
my $seed = 1;
sub draw { $seed = ($seed * 1103515245 + 12345) & 0x7fffffff; return ($seed >> 8) % $_[0]; }
sub fib { my $n = shift; return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
for my $turn (1 .. 6 * $ARGV[0]) {
    my (%count, $text);
    for (1 .. 90000) { my $word = chr(97 + draw(26)) . draw(700); $count{$word}++; $text .= "$word "; }
    my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    my $matches = () = $text =~ /\b([a-e]\d+) [f-z](\d)\d* /g;
    (my $changed = $text) =~ s/(\d+)/$1 + 1/ge;
    print "$sorted[0] $matches ", length($changed), " ", fib(20), "\n";
}
