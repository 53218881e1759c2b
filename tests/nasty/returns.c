/* Returns that can be counted: each call of `slow` and of what lies between main and it lasts many samples, each of `quick`
 * far less than one. returns ROUNDS prints what is true. The hazards: activations of one procedure at several depths, of one
 * after the other at the same place on the stack, and of two that call each other; with `brief`, activations so short that a
 * mark is not at the place of the frame that it was set for when the next sample comes. */
#include <stdint.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define APART __attribute__((noinline, noclone))
#define DEPTHS 5
static volatile uint64_t sink;
static long slows, middles, evens, odds, agains, nests, nested_at[DEPTHS];

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

static void work(double seconds)
{
    double end = used() + seconds;
    while (used() < end)
        for (int i = 0; i < 20; i++)
            quick();
}

APART void slow(void)
{
    work(0.008);
    slows++;
}

APART void odd(int depth);

/* Two that call each other. */
APART void even(int depth)
{
    if (depth == 0)
        slow();
    else
        odd(depth - 1);
    evens++;
    sink = sink + 1;
}

APART void odd(int depth)
{
    if (depth == 0)
        slow();
    else
        even(depth - 1);
    odds++;
    sink = sink + 1;
}

/* One that calls itself; each activation works before it goes deeper and after it has come back. */
APART void nested(int depth, int deepest)
{
    work(0.004);
    if (depth < deepest)
        nested(depth + 1, deepest);
    work(0.004);
    nested_at[depth]++;
    sink = sink + 1;
}

/* One activation after the other, all with their return address at one place. */
APART void again(void)
{
    work(0.006);
    agains++;
}

APART void brief(void)
{
    for (int i = 0; i < 2000; i++)
        sink = sink * 5 + 1;
}

APART void middle(int calls)
{
    for (int i = 0; i < calls; i++) {
        even(i % 5);
        /* Callpath stands before it: its return is none of middle's. */
        poll(0, 0, 3);
    }
    for (int i = 0; i < calls; i++)
        again();
    for (int i = 0; i < 3; i++) {
        nested(0, i % 2 ? DEPTHS - 1 : 2);
        nests++;
    }
    for (int i = 0; i < 20000; i++)
        brief();
    middles++;
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 10;
    for (int i = 0; i < rounds; i++)
        middle(7);
    printf("slow %ld even %ld odd %ld again %ld middle %ld main 1\n", slows, evens, odds, agains, middles);
    for (int i = 0; i < DEPTHS; i++)
        printf("%ld ", nested_at[i]);
    printf("\n");
    return 0;
}
