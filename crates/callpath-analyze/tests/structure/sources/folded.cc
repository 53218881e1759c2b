// Procedures with the same code, which a linker makes one: it has the lines of the one that is kept.
extern "C" int out(long);

extern "C" void folded_one(long n) {
    for (long i = 0; i < n; i++) //@ loop first: folded_one
        out(i);
}

extern "C" void folded_two(long n) {
    for (long i = 0; i < n; i++)
        out(i);
}

template <typename T> struct List {
    T *values;
    __attribute__((noinline)) long walk(long n) {
        long total = 0;
        for (long i = 0; i < n; i++) { //@ loop walk: walk
            total += (long)values[i];
            out(total);
        }
        return total;
    }
};

extern "C" long walks(List<long> &longs, List<char *> &texts, long n) {
    long total = 0;
    for (long i = 0; i < n; i++) { //@ loop walks: walks
        total += longs.walk(i);
        total += texts.walk(i + 1);
        out(total);
    }
    return total;
}
