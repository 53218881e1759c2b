// Eight procedures of different weights, two of which a macro each can make slower: TOKEN (about 30% of the run) and INTERN
// (about 1%), in thousandths of their usual work. Argument: how much work, 100 is about a second.
#include <stdio.h>
#include <stdlib.h>

#ifndef TOKEN
#define TOKEN 1000
#endif
#ifndef INTERN
#define INTERN 1000
#endif

static volatile unsigned long sink;

#define PROCEDURE(name, first)                                                                                        \
    static __attribute__((noinline)) void name(unsigned long steps) {                                                 \
        unsigned long x = sink + 88172645463325252ul;                                                                 \
        for (unsigned long i = 0; i < steps; i++) {                                                                   \
            x ^= x << first;                                                                                          \
            x ^= x >> 7;                                                                                              \
            x ^= x << 17;                                                                                             \
        }                                                                                                             \
        sink = x;                                                                                                     \
    }

// Different shifts, so that no compiler or linker makes one procedure of them.
PROCEDURE(token, 13)
PROCEDURE(intern, 15)
PROCEDURE(dot, 17)
PROCEDURE(norm, 19)
PROCEDURE(sort, 21)
PROCEDURE(hash, 23)

// Small enough that compilers inline it at some levels and not at others.
static unsigned long mix(unsigned long x, unsigned long steps) {
    for (unsigned long i = 0; i < steps; i++) {
        x = x * 6364136223846793005ul + (x >> 33);
    }
    return x;
}

static __attribute__((noinline)) void parse(unsigned long unit) {
    token(300 * unit * TOKEN / 1000);
    intern(10 * unit * INTERN / 1000);
    sink = mix(sink, 60 * unit);
}

static __attribute__((noinline)) void solve(unsigned long unit) {
    dot(250 * unit);
    norm(100 * unit);
    sink = mix(sink, 60 * unit);
}

static __attribute__((noinline)) void store(unsigned long unit) {
    sort(140 * unit);
    hash(80 * unit);
}

int main(int argc, char **argv) {
    unsigned long amount = argc > 1 ? strtoul(argv[1], NULL, 10) : 100;
    for (unsigned long round = 0; round < amount; round++) {
        parse(6000);
        solve(6000);
        store(6000);
    }
    printf("%lu\n", sink);
    return 0;
}
