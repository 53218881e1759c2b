// Work that several threads share, and work that each of them does in full, of equal size where one thread runs. Arguments: how
// many threads, and how much work, 100 is about a second in all.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long threads, amount;
static volatile unsigned long sink;

#define PROCEDURE(name, first)                                                                                        \
    static __attribute__((noinline)) void name(unsigned long steps) {                                                 \
        unsigned long x = 88172645463325252ul;                                                                        \
        for (unsigned long i = 0; i < steps; i++) {                                                                   \
            x ^= x << first;                                                                                          \
            x ^= x >> 7;                                                                                              \
            x ^= x << 17;                                                                                             \
        }                                                                                                             \
        sink = x;                                                                                                     \
    }

// Different shifts, so that no compiler or linker makes one procedure of them.
PROCEDURE(share, 13)
PROCEDURE(repeat, 15)

static void *work(void *unused) {
    (void)unused;
    for (unsigned long round = 0; round < amount; round++) {
        share(3000000 / threads);
        repeat(3000000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    amount = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    if (threads < 1 || threads > 64) {
        fprintf(stderr, "1 to 64 threads\n");
        return 1;
    }
    pthread_t all[64];
    for (unsigned long i = 0; i < threads; i++) {
        if (pthread_create(&all[i], NULL, work, NULL) != 0) {
            return 1;
        }
    }
    for (unsigned long i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
    }
    printf("%lu\n", sink);
    return 0;
}
