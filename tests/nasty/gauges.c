/* Functions whose arguments, results and times the program knows itself. `gauges values` calls `takes` on two paths, by
 * recursion, in threads, in a signal handler, and out of it by longjmp; `gauges times` calls functions that use the processor
 * or sleep. It writes `known`: for each path
 *   histogram WHAT PATH COUNT...   by floor(log2(value)), 0 in the first place
 *   sum WHAT PATH VALUE
 *   cpu PATH LEAST MOST            exclusive, ns, all calls together: by clocks read inside and outside of the function
 *   wall PATH CALLS LEAST MOST     of each call, ns: by clocks read inside and outside of it; one such line for each call */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))
#define PATHS 6
#define ROUNDS 3000

struct thing {
    uint32_t size;
    int16_t step;
};

/* What happened on a path: written by one thread each, or by the handler. */
static struct known {
    const char *path;
    uint64_t pointer[64], number[64], narrow[64], result[64];
    int64_t sum, read;
    uint64_t unreadable;
} known[PATHS] = {
    {.path = "main;values;first;takes"},
    {.path = "main;values;second;takes"},
    {.path = "main;values;first;takes;takes"},
    {.path = "beside;takes"},
    {.path = "main;values;raises;handler;takes"},
    {.path = "main;values;leaves;takes"},
};
static struct thing *not_there;
static jmp_buf back;

static unsigned bin(uint64_t value)
{
    return value ? 63 - __builtin_clzll(value) : 0;
}

static uint64_t mixed(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> (*seed >> 58);
}

/* What the arguments and the result of a call on this path are. */
static void note(int path, struct thing *thing, uint64_t number, int32_t narrow, uint64_t result, int returns)
{
    struct known *here = &known[path];
    here->pointer[bin((uintptr_t)thing)]++;
    here->number[bin(number)]++;
    here->narrow[bin((uint32_t)narrow)]++;
    here->sum += (int64_t)(number & 0xffff) - narrow * 3;
    if (thing == not_there)
        here->unreadable++;
    else
        here->read += thing->size + thing->step;
    if (returns)
        here->result[bin(result)]++;
}

APART uint64_t takes(struct thing *thing, uint64_t number, int32_t narrow, int again)
{
    if (again == 2)
        longjmp(back, 1);
    if (again == 1)
        takes(thing, number + 1, narrow, 0);
    __asm__ volatile("" : "+r"(number));
    return number * 5;
}

static struct thing things[8];

APART void first(uint64_t *seed)
{
    uint64_t number = mixed(seed);
    struct thing *thing = number % 7 ? &things[number % 8] : not_there;
    int again = number % 3 == 0;
    note(0, thing, number, (int32_t)(number % 1000) - 500, number * 5, 1);
    if (again)
        note(2, thing, number + 1, (int32_t)(number % 1000) - 500, (number + 1) * 5, 1);
    takes(thing, number, (int32_t)(number % 1000) - 500, again);
    __asm__ volatile("");
}

APART void second(uint64_t *seed)
{
    uint64_t number = mixed(seed) >> 40;
    note(1, &things[1], number, -7, number * 5, 1);
    takes(&things[1], number, -7, 0);
    __asm__ volatile("");
}

APART void leaves(uint64_t *seed)
{
    uint64_t number = mixed(seed);
    note(5, &things[2], number, 1, 0, 0);
    if (!setjmp(back))
        takes(&things[2], number, 1, 2);
    __asm__ volatile("");
}

static uint64_t handlers_seed = 99;

static void handler(int signal)
{
    uint64_t number = mixed(&handlers_seed);
    note(4, &things[3], number, signal, number * 5, 1);
    takes(&things[3], number, signal, 0);
    __asm__ volatile("");
}

APART void raises(void)
{
    raise(SIGUSR1);
    __asm__ volatile("");
}

APART void *beside(void *argument)
{
    uint64_t seed = 7;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t number = mixed(&seed);
        note(3, &things[4], number, i, number * 5, 1);
        takes(&things[4], number, i, 0);
    }
    return argument;
}

static void write_histogram(FILE *to, const char *what, const char *path, const uint64_t *counts)
{
    int last = 63;
    while (last > 0 && !counts[last])
        last--;
    fprintf(to, "histogram %s %s", what, path);
    for (int i = 0; i <= last; i++)
        fprintf(to, " %llu", (unsigned long long)counts[i]);
    fputc('\n', to);
}

static void values(FILE *to)
{
    for (int i = 0; i < 8; i++)
        things[i] = (struct thing){.size = 4000000000u + i, .step = -i * 1000};
    not_there = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGUSR1, handler);
    pthread_t thread;
    pthread_create(&thread, NULL, beside, NULL);
    uint64_t seed = 1;
    for (int i = 0; i < ROUNDS; i++) {
        first(&seed);
        second(&seed);
        if (i % 10 == 0) {
            raises();
            leaves(&seed);
        }
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < PATHS; i++) {
        struct known *here = &known[i];
        write_histogram(to, "arg:1", here->path, here->pointer);
        write_histogram(to, "arg:2", here->path, here->number);
        write_histogram(to, "arg:3:u32", here->path, here->narrow);
        write_histogram(to, "ret", here->path, here->result);
        fprintf(to, "sum mix %s %lld\n", here->path, (long long)here->sum);
        fprintf(to, "sum read %s %lld\n", here->path, (long long)here->read);
        fprintf(to, "sum read:unreadable %s %llu\n", here->path, (unsigned long long)here->unreadable);
    }
}

static uint64_t read_clock(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

#define CPU CLOCK_THREAD_CPUTIME_ID
#define WALL CLOCK_MONOTONIC

/* Between two readings that the clock makes itself. */
struct span {
    uint64_t cpu, wall;
};

static struct span now(void)
{
    return (struct span){read_clock(CPU), read_clock(WALL)};
}

static struct span since(struct span begin)
{
    struct span end = now();
    return (struct span){end.cpu - begin.cpu, end.wall - begin.wall};
}

static struct span inside, inside_of_callee;

APART void burns(uint64_t ns)
{
    struct span begin = now();
    while (read_clock(CPU) < begin.cpu + ns)
        ;
    inside = since(begin);
}

APART void sleeps(uint64_t ns)
{
    struct span begin = now();
    struct timespec time = {0, (long)ns};
    while (clock_nanosleep(WALL, 0, &time, &time))
        ;
    inside = since(begin);
}

static struct span around_callee;

APART void both(uint64_t ns)
{
    struct span begin = now();
    while (read_clock(CPU) < begin.cpu + ns)
        ;
    struct span called = now();
    burns(2 * ns);
    around_callee = since(called);
    inside_of_callee = inside;
    struct span rest = since(begin);
    inside = (struct span){rest.cpu - around_callee.cpu, rest.wall};
}

static void times(FILE *to)
{
    uint64_t burnt[2] = {0}, both_cpu[2] = {0}, callee_cpu[2] = {0}, slept[2] = {0};
    for (int i = 0; i < 40; i++) {
        struct span begin = now();
        burns(100000 + 50000 * (i % 5));
        struct span around = since(begin);
        burnt[0] += inside.cpu;
        burnt[1] += around.cpu;
        fprintf(to, "wall main;times;burns 1 %llu %llu\n", (unsigned long long)inside.wall, (unsigned long long)around.wall);
        begin = now();
        sleeps(50000 << (i % 7));
        around = since(begin);
        slept[0] += inside.cpu;
        slept[1] += around.cpu;
        fprintf(to, "wall main;times;sleeps 1 %llu %llu\n", (unsigned long long)inside.wall, (unsigned long long)around.wall);
        begin = now();
        both(100000);
        around = since(begin);
        both_cpu[0] += inside.cpu;
        both_cpu[1] += around.cpu - inside_of_callee.cpu;
        callee_cpu[0] += inside_of_callee.cpu;
        callee_cpu[1] += around_callee.cpu;
        fprintf(to, "wall main;times;both 1 %llu %llu\n", (unsigned long long)inside.wall, (unsigned long long)around.wall);
        fprintf(to, "wall main;times;both;burns 1 %llu %llu\n", (unsigned long long)inside_of_callee.wall,
                (unsigned long long)around_callee.wall);
    }
    fprintf(to, "cpu main;times;burns %llu %llu\n", (unsigned long long)burnt[0], (unsigned long long)burnt[1]);
    fprintf(to, "cpu main;times;sleeps %llu %llu\n", (unsigned long long)slept[0], (unsigned long long)slept[1]);
    fprintf(to, "cpu main;times;both %llu %llu\n", (unsigned long long)both_cpu[0], (unsigned long long)both_cpu[1]);
    fprintf(to, "cpu main;times;both;burns %llu %llu\n", (unsigned long long)callee_cpu[0], (unsigned long long)callee_cpu[1]);
}

int main(int argc, char **argv)
{
    FILE *to = fopen("known", "w");
    if (argc > 1 && !strcmp(argv[1], "values"))
        values(to);
    else
        times(to);
    fclose(to);
    puts("measured");
    return 0;
}
