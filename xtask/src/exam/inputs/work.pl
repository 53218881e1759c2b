use strict; use warnings;
my %count; open my $in, '<', 'text.txt' or die; while (<$in>) { chomp; $count{$_}++ for split / /; }
my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print join(' ', @sorted[0 .. 9]), "\n";
sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) }
print fib(10), "\n";
my $text = "path to the frame"; (my $other = $text) =~ s/(\w+) to (\w+)/$2 of $1/e if 0; $other = reverse $text; print "$other\n";
eval { die { code => 7 } }; print "caught $@->{code}\n" if ref $@;
printf "%.3f %s %5d|%-5s|\n", sin(1), sprintf('%x', 255), 42, 'ab'; print join(',', map { $_ * 2 } grep { $_ % 2 } 1 .. 9), "\n";
my $pack = pack 'NnC a4', 1, 2, 3, 'abc'; print length $pack, "\n"; local $_ = 'aXbXc'; my @parts = split /X/; print scalar @parts, "\n";
