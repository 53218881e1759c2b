// Code that is seldom run lies elsewhere: loops in it, around it, and of which only a part is in it. Where clang splits it off
// (`split`), it makes procedures of it, which are called.
int out(long);
__attribute__((cold)) int seldom(long);

void warms(long n) {
    for (long i = 0; i < n; i++) { //@ loop warm: warms
        out(i);
        if (__builtin_expect(out(i + 1) == 7, 0)) {
            seldom(i); //@ !split line rare: warms > warm
            for (long j = 0; j < i; j++) //@ !split loop rare: warms > warm; split O0 loop rare: warms > warm; split O1+ loop rare: warms.cold.1
                seldom(j);
        }
    }
}

// It leaves the loop, and has a loop of its own.
void fails(long n) {
    for (long i = 0; i < n; i++) { //@ loop tries: fails
        if (out(i) < 0) {
            seldom(i);
            for (long j = 0; j < i; j++) //@ !split loop reports: fails; split O0 loop reports: fails; split O1+ loop reports: fails.cold.1
                seldom(j + 1);
            return;
        }
        out(i + 2);
    }
}

static inline __attribute__((always_inline)) void reports(long n) {
    while (n-- > 0) //@ loop lines: inlines > rows > reports()
        seldom(n);
}

void inlines(long n) {
    for (long i = 0; i < n; i++) { //@ loop rows: inlines
        if (__builtin_expect(out(i), 0))
            reports(i); //@ inlined reports: inlines > rows
        out(i + 3);
    }
}

__attribute__((cold)) void wholly(long n) {
    for (long i = 0; i < n; i++) //@ loop wholly: wholly
        out(i);
}
