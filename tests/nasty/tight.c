/* Short loops of one block, which count in turn, in a procedure with few paths and in one with very many, and a handler that passes through both
 * while they count: tight [CALLS]. It prints for each procedure how many paths are executed in all: one ends with each turn of a loop but its last, and one
 * with each call. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define APART __attribute__((noinline, noclone))

/* Of the program, and of its handler. */
static volatile uint64_t few_paths[2], many_paths[2];
static volatile uint32_t sink[32];

APART uint64_t few(uint64_t x, uint32_t turns)
{
    do {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" : "+r"(x));
    } while (--turns);
    return x;
}

/* 2 to the power of 20 ways between two loops. */
#define MAYBE(bit) \
    if (chosen & 1u << (bit)) \
        sink[bit]++;
#define MAYBE_4(bit) MAYBE(bit) MAYBE(bit + 1) MAYBE(bit + 2) MAYBE(bit + 3)

APART uint64_t many(uint64_t x, uint32_t chosen, uint32_t before, uint32_t behind)
{
    do {
        x ^= x << 7;
        __asm__ volatile("" : "+r"(x));
    } while (--before);
    MAYBE_4(0) MAYBE_4(4) MAYBE_4(8) MAYBE_4(12) MAYBE_4(16)
    do {
        x += x >> 9;
        __asm__ volatile("" : "+r"(x));
    } while (--behind);
    return x;
}

static uint64_t call(uint64_t x, int who)
{
    uint32_t turns = 1 + (x >> 33) % 9, before = 1 + (x >> 40) % 7, behind = 1 + (x >> 50) % 6;
    few_paths[who] += turns;
    x = few(x, turns);
    many_paths[who] += before + behind - 1;
    return many(x, x >> 20, before, behind);
}

static volatile int handled;

static void handle(int number)
{
    static uint64_t x = 3;
    (void)number;
    if (handled++ < 300)
        x = call(x, 1);
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 20000;
    struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, handle);
    setitimer(ITIMER_REAL, &every, NULL);
    uint64_t x = 1;
    for (int i = 0; i < calls; i++)
        x = call(x, 0);
    few_paths[0] += 50000000;
    x = few(x, 50000000);
    many_paths[0] += 50000000 + 1 - 1;
    x = many(x, x, 50000000, 1);
    setitimer(ITIMER_REAL, &never, NULL);
    printf("few %lu\nmany %lu\n", (unsigned long)(few_paths[0] + few_paths[1]), (unsigned long)(many_paths[0] + many_paths[1]));
    return x == 0;
}
