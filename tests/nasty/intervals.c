/* 200 procedures with a path each, of which an execution takes more or less time by chance: intervals.c CALLS. It measures each call itself and prints, for each
 * procedure, what its calls took in all: "works_17 1234567", nanoseconds.
 *
 * What a call takes is how many bytes it fills. The caller's own part, which a call of `nothing` takes, too, is taken off. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static unsigned char room[1 << 16];

static uint64_t ticks(void) {
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
    return (uint64_t)high << 32 | low;
}

static void fills(uint64_t bytes) {
    void *to = room;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0) : "memory");
}

__attribute__((noinline)) static void nothing(uint64_t bytes) { __asm__ volatile("" : : "r"(bytes)); }

#define WORKS(n) \
    __attribute__((noinline)) static void works_##n(uint64_t bytes) { fills(bytes); }
#define TEN(f, n) f(n##0) f(n##1) f(n##2) f(n##3) f(n##4) f(n##5) f(n##6) f(n##7) f(n##8) f(n##9)
#define ALL(f)                                                                                                                  \
    TEN(f, 10) TEN(f, 11) TEN(f, 12) TEN(f, 13) TEN(f, 14) TEN(f, 15) TEN(f, 16) TEN(f, 17) TEN(f, 18) TEN(f, 19) TEN(f, 20)      \
    TEN(f, 21) TEN(f, 22) TEN(f, 23) TEN(f, 24) TEN(f, 25) TEN(f, 26) TEN(f, 27) TEN(f, 28) TEN(f, 29)
ALL(WORKS)

#define NAME(n) {"works_" #n, works_##n},
static const struct {
    const char *name;
    void (*works)(uint64_t);
} all[] = {ALL(NAME)};

static uint64_t state = 88172645463325252u;

static uint64_t chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* What calls took, ticks. */
static uint64_t calls(void (*works)(uint64_t), uint64_t count, uint64_t spread) {
    uint64_t sum = 0;
    for (uint64_t call = 0; call < count; call++) {
        uint64_t bytes = 2000 + chance() % spread;
        uint64_t began = ticks();
        works(bytes);
        sum += ticks() - began;
    }
    return sum;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
    uint64_t took[200];
    uint64_t began = ticks(), began_ns = now();
    uint64_t least = calls(nothing, count, 100);
    for (int n = 0; n < 200; n++) took[n] = calls(all[n].works, count, 1000 + 150 * (uint64_t)n);
    double ns = (double)(now() - began_ns) / (double)(ticks() - began);
    for (int n = 0; n < 200; n++) printf("%s %.0f\n", all[n].name, (double)(took[n] - least) * ns);
    return 0;
}
