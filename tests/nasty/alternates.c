/* Stacks of 900 KB that differ in their outermost and innermost frames only, by turns, some ten thousand times a second: alternates MS. The
 * hazard: copies of one are taken for those of the other's sample, whose own were lost. */
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

__attribute__((noinline)) void work_of_first(void)
{
    for (int i = 0; i < 20000; i++)
        sink += 1;
}

__attribute__((noinline)) void work_of_second(void)
{
    for (int i = 0; i < 20000; i++)
        sink += 2;
}

__attribute__((noinline)) void descend(int depth, void (*work)(void))
{
    volatile char frame[1000];
    frame[0] = (char)depth;
    if (depth > 1)
        descend(depth - 1, work);
    else
        work();
    frame[0] += 1;
}

__attribute__((noinline)) void first(void)
{
    descend(900, work_of_first);
    sink += 1;
}

__attribute__((noinline)) void second(void)
{
    descend(900, work_of_second);
    sink += 1;
}

static uint64_t cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
    uint64_t until = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    while (cpu_ms() < until) {
        first();
        second();
    }
    return 0;
}
