/* Paths that take a known time, by a chain of divisions each of which waits for the one before: timed.c ROUNDS.
 *
 * Of each eight calls of `works` six take the short path, and two the long one, which takes three times as long. `calls` does as much as the short path itself,
 * and calls `works` in the middle. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static volatile uint64_t divisor = 3;

/* Four divisions, some 4 ns each; unrolled, so that they are on the path, and no loop of their own. */
#define FOUR(value)                                                                                                          \
    __asm__ volatile(                                                                                                        \
        "xor %%edx, %%edx\n\tdiv %1\n\tbts $62, %0\n\txor %%edx, %%edx\n\tdiv %1\n\tbts $62, %0\n\txor %%edx, %%edx\n\tdiv %1\n\t" \
        "bts $62, %0\n\txor %%edx, %%edx\n\tdiv %1\n\tbts $62, %0"                                                             \
        : "+a"(value)                                                                                                        \
        : "r"(by)                                                                                                            \
        : "rdx", "cc")

__attribute__((noinline)) uint64_t works(uint64_t which, uint64_t value) {
    uint64_t by = divisor;
    FOUR(value);
    FOUR(value);
    if (which % 4 == 3) {
        FOUR(value);
        FOUR(value);
        FOUR(value);
        FOUR(value);
    }
    return value;
}

__attribute__((noinline)) uint64_t calls(uint64_t which, uint64_t value) {
    uint64_t by = divisor;
    FOUR(value);
    value = works(which, value);
    FOUR(value);
    return value;
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t value = 1;
    for (uint64_t round = 0; round < rounds; round++) {
        value = calls(round, value);
    }
    printf("%d\n", value > 0);
    return 0;
}
