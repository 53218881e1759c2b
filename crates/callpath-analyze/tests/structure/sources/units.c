// Two units that link-time optimization makes one: each inlines the other's loops.
int out(long);
__attribute__((visibility("hidden"))) long other_loops(long n);
__attribute__((visibility("hidden"))) long other_calls(long n);

__attribute__((visibility("hidden"))) long back(long n) {
    long total = 0;
    for (long i = 0; i < n; i++) //@ loop back: around > other_calls() > back(), alone > other_calls() > back()
        total += out(i + 5);
    return total;
}

long around(long n) {
    long total = 0;
    for (long i = 0; i < n; i++) { //@ loop around: around
        total += other_loops(i); //@ inlined other_loops: around > around
        out(total);
    }
    out(n);
    total += other_calls(n); //@ inlined other_calls: around
    return total;
}

long alone(long n) {
    out(n + 1);
    return other_calls(n) + 1; //@ inlined other_calls: alone
}
