// What units.c inlines when both are optimized as one.
int out(long);
__attribute__((visibility("hidden"))) long back(long n);

__attribute__((visibility("hidden"))) long other_loops(long n) {
    long total = 0;
    while (n-- > 0) //@ loop others: around > around > other_loops()
        total += out(n + 2);
    return total;
}

__attribute__((visibility("hidden"))) long other_calls(long n) {
    return back(n) + 3; //@ inlined back: around > other_calls(), alone > other_calls()
}
