/* Makes many calling contexts in a short time, then a hundred more a second; says when it begins with those.
 * growth CONTEXTS SECONDS */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Frames of a path while the tree grows fast: each sample of another path adds almost as many contexts. */
enum { DEEP = 900, DEEP_US = 2000, LEAF_US = 20000 };

static unsigned long long seed = 1;
static unsigned bit(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 63;
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static long turns_per_us = 1000;
static void spin_us(long us) {
    for (long n = us * turns_per_us; n > 0; n--) __asm__ volatile("");
}

__attribute__((noinline, optimize("no-optimize-sibling-calls"))) static void random_path(int depth) {
    if (depth == 0) {
        spin_us(DEEP_US);
    } else if (bit()) {
        random_path(depth - 1);
        __asm__ volatile("");
    } else {
        random_path(depth - 1);
        __asm__ volatile("nop");
    }
}

/* The path whose calls come from one place or the other by the binary digits of `number`. */
__attribute__((noinline, optimize("no-optimize-sibling-calls"))) static void path_of(unsigned number, int digits) {
    if (digits == 0) {
        spin_us(LEAF_US);
    } else if (number & 1) {
        path_of(number >> 1, digits - 1);
        __asm__ volatile("");
    } else {
        path_of(number >> 1, digits - 1);
        __asm__ volatile("nop");
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long contexts = atol(argv[1]);
    double seconds = atof(argv[2]);
    double before = now_ms();
    spin_us(20000);
    turns_per_us = 1000 * 20 / (now_ms() - before);
    for (long made = 0; made < contexts; made += DEEP) random_path(DEEP);
    puts("steady");
    fflush(stdout);
    double end = now_ms() + 1e3 * seconds;
    /* Bit-reversed, so that each path leaves the ones before it near its end. */
    for (unsigned n = 0; now_ms() < end; n++) {
        unsigned reversed = 0;
        for (int digit = 0; digit < 20; digit++) reversed |= (n >> digit & 1) << (19 - digit);
        path_of(reversed, 20);
    }
    return 0;
}
