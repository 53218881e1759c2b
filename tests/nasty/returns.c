/* Returns that can be counted: each call of `slow` and of what lies between main and it lasts many samples, each of `quick`
 * far less than one. returns ROUNDS prints what is true. */
#include <stdint.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))
static volatile uint64_t sink;
static long slows, middles, evens;

static double used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

APART void quick(void)
{
    for (int i = 0; i < 100; i++)
        sink = sink * 3 + 1;
}

APART void slow(void)
{
    double end = used() + 0.008;
    while (used() < end)
        for (int i = 0; i < 20; i++)
            quick();
    slows++;
}

APART void even(int depth)
{
    if (depth == 0)
        slow();
    else
        even(depth - 1);
    evens++;
    sink = sink + 1;
}

APART void middle(int calls)
{
    for (int i = 0; i < calls; i++) {
        even(i % 5);
        /* Callpath stands before it: its return is none of middle's. */
        poll(0, 0, 3);
    }
    middles++;
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 10;
    for (int i = 0; i < rounds; i++)
        middle(7);
    printf("slow %ld even %ld middle %ld main 1\n", slows, evens, middles);
    return 0;
}
