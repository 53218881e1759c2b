/* Takes many ways through its procedures, and says how often: one line for each path through `chooses`. */
#include <stdio.h>
#include <stdlib.h>

/* Who looks at each instruction takes fewer. */
#ifndef ROUNDS
#define ROUNDS 20000
#endif

/* What a compiler neither moves nor computes without a jump. */
#define DO(what)                              \
    do {                                      \
        what;                                 \
        __asm__ volatile("nop" ::: "memory"); \
    } while (0)

static unsigned long taken[8];
unsigned long sum;

/* Three conditions that do not depend on each other: eight paths. */
__attribute__((noinline)) void chooses(unsigned bits) {
    unsigned which = 0;
    if (bits & 1)
        DO(which += 1);
    if (bits & 2)
        DO(which += 2);
    if (bits & 4)
        DO(which += 4);
    taken[which]++;
}

/* Loops in each other, left in the middle and begun anew. */
__attribute__((noinline)) unsigned loops(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        for (unsigned j = 0; j < i; j++) {
            if ((i * j) % 7 == 3)
                continue;
            if ((i + j) % 11 == 9) {
                DO(sum += j);
                break;
            }
            DO(sum ^= i);
        }
        DO(sum += 1);
        if (sum % 1000003 == 17)
            return i;
    }
    DO(sum += 2);
    return n;
}

/* A jump through a table. */
__attribute__((noinline)) void jumps(unsigned which) {
    switch (which % 8) {
    case 0:
        DO(sum += 3);
        break;
    case 1:
        DO(sum ^= 5);
        break;
    case 2:
        DO(sum *= 7);
        /* fall through */
    case 3:
        DO(sum -= 9);
        break;
    case 4:
        DO(sum |= 11);
        break;
    case 5:
        DO(sum += 13);
        return;
    default:
        DO(sum ^= 17);
    }
    DO(sum += 19);
}

/* Each activation's path is its own. */
__attribute__((noinline)) unsigned recurses(unsigned n) {
    if (n < 2)
        return 1;
    DO(sum += n);
    return recurses(n - 1) + recurses(n - 2);
}

int main(void) {
    unsigned state = 2463534242u;
    for (unsigned i = 0; i < ROUNDS; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        chooses(state >> 7);
        if (state % 5)
            jumps(state >> 12);
    }
    for (unsigned i = 0; i < 20; i++)
        loops(i * 3);
    recurses(15);
    for (unsigned which = 0; which < 8; which++)
        printf("path %u: %lu\n", which, taken[which]);
    return 0;
}
